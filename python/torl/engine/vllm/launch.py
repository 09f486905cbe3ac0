"""Starting vLLM: in a thread, with an environment of its own, and so that it can be given up at any time."""

import asyncio
import contextlib
import gc
import importlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from torl.engine.protocol import EngineSetup
from torl.engine.vllm.arguments import engine_arguments, process_environment, socket_variables
from torl.engine.vllm.devices import devices_of
from torl.engine.vllm.options import VllmOptions
from torl.engine.vllm.process_setup import ProcessSetup, log_to_file
from torl.engine.vllm.processes import end_processes, with_descendants

# In parts, because a start cannot be given up during an import: all together take some 10 s.
_IMPORTS = ("torch", "transformers", "vllm", "vllm.config", "vllm.engine.arg_utils", "vllm.v1.engine.async_llm")
_POLL_SECONDS = 0.05
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "VLLM_OMP_NUM_THREADS_SET_BY_VLLM")
_environment_lock = threading.Lock()


class _GivenUpError(Exception):
    """Nobody waits for the engine any more."""


@dataclass(frozen=True, slots=True)
class LaunchPaths:
    """What belongs to one of several engines alone."""

    number: int
    directory: Path  # for sockets and temporary files
    log_path: Path
    announcements: str  # the socket to announce to


class Launch:
    """One start of vLLM's AsyncLLM."""

    def __init__(self, setup: EngineSetup, options: VllmOptions, place: LaunchPaths) -> None:
        self._setup = setup
        self._options = options
        self._place = place
        self._given_up = threading.Event()
        self._process_setup: ProcessSetup | None = None
        self.on_cpu = False

    async def run(self) -> Any:
        """The running AsyncLLM. Cancelled, it kills the processes it has started and returns when they have ended.

        Raises:
            ConfigError: the options hold an argument that cannot be.
            Exception: whatever vLLM raises; it has ended its processes.
        """
        # In a thread, because vLLM blocks until its processes are up.
        building = asyncio.get_running_loop().run_in_executor(None, self._build)
        try:
            return await asyncio.shield(building)
        except asyncio.CancelledError:
            self._given_up.set()
            while not building.done():
                await asyncio.to_thread(self._kill)
                await asyncio.wait([building], timeout=_POLL_SECONDS)
            if building.exception() is None:
                await asyncio.to_thread(building.result().shutdown, 0.0)
            raise

    def _kill(self) -> None:
        """vLLM notices the death of its processes, and its start fails."""
        if self._process_setup is not None:
            end_processes(with_descendants(self._process_setup.started()))

    def _build(self) -> Any:
        """Build the AsyncLLM; leave this process's environment as it was.

        vLLM writes to `os.environ` for the processes it will start. What it wrote goes to them by the
        `ProcessSetup`, and only to them.
        """
        log_to_file(self._setup.log_path)  # before the import, which has something to say
        with ThreadPoolExecutor(1, thread_name_prefix="vllm-start") as starts:
            while not _environment_lock.acquire(timeout=_POLL_SECONDS):
                self._go_or_stop()
            try:
                starting = self._spawning(starts)
            finally:
                _environment_lock.release()
            return starting.result()

    def _spawning(self, starts: ThreadPoolExecutor) -> Future[Any]:
        """Build the AsyncLLM in a thread, until its core was spawned: engines load the model side by side."""
        with _private_environment() as changes:
            # In a thread of their own: some library keeps an exception of its import, and with the exception every
            # frame below it, which would keep the AsyncLLM alive until the interpreter ends.
            with ThreadPoolExecutor(1, thread_name_prefix="vllm-import") as imports:
                first = _IMPORTS[-1] not in sys.modules
                for module in _IMPORTS:
                    self._go_or_stop()
                    imports.submit(importlib.import_module, module).result()
            if first:
                _freeze_modules()
            config, setup = self._vllm_config(changes)
        self._go_or_stop()
        # A fork of a process with threads and an event loop may deadlock, and nothing would be unpickled in it.
        variables = {"VLLM_WORKER_MULTIPROC_METHOD": "spawn", **socket_variables(self._place.directory)}
        with _with_variables(variables), _without_main():
            threads = _thread_variables()
            starting = starts.submit(_async_llm, config)
            while not starting.done() and not (setup.started() and _thread_variables() == threads):
                time.sleep(_POLL_SECONDS)
        return starting

    def _vllm_config(self, changes: Callable[[], Mapping[str, str | None]]) -> tuple[Any, ProcessSetup]:
        from vllm.config.logging import LoggingConfig
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.platforms import current_platform

        self.on_cpu = current_platform.is_cpu()
        known = [field.name for field in fields(AsyncEngineArgs)]
        devices = devices_of(self._place.number, self._setup, self._options, on_cpu=self.on_cpu)
        arguments = engine_arguments(self._setup, self._options, devices, on_cpu=self.on_cpu, known=known)
        engine_args = AsyncEngineArgs(**arguments, logging_config=LoggingConfig(configure_logging=False))
        config = engine_args.create_engine_config()
        cores = devices if self.on_cpu else ()
        environment = process_environment(self._options, self._place.directory, cores, on_cpu=self.on_cpu)
        self._process_setup = setup = ProcessSetup(
            str(self._place.log_path.resolve()),
            {**changes(), **environment},
            self._setup.vocabulary,
            self._place.announcements,
            cores,
        )
        config.additional_config = setup
        scheduler = "AsyncTurnScheduler" if config.scheduler_config.async_scheduling else "TurnScheduler"
        config.scheduler_config.scheduler_cls = f"torl.engine.vllm.scheduler.{scheduler}"
        return config, setup

    def _go_or_stop(self) -> None:
        if self._given_up.is_set():
            raise _GivenUpError


def _freeze_modules() -> None:
    """Spare Python's garbage collection what was imported: millions of objects, a third of a second each time.

    They live as long as the process. What is made later, an AsyncLLM above all, is collected as ever.
    """
    gc.collect()
    gc.freeze()


def _async_llm(config: Any) -> Any:
    from vllm.v1.engine.async_llm import AsyncLLM

    return AsyncLLM.from_vllm_config(config, disable_log_stats=True)


def _thread_variables() -> list[str | None]:
    """What vLLM sets in this process's environment while it spawns a core."""
    return [os.environ.get(name) for name in _THREAD_VARIABLES]


@contextlib.contextmanager
def _private_environment() -> Iterator[Callable[[], Mapping[str, str | None]]]:
    """Put `os.environ` back at the end; yields a function that tells what has changed since the beginning."""
    before = dict(os.environ)

    def changes() -> dict[str, str | None]:
        names = before.keys() | os.environ.keys()
        return {name: os.environ.get(name) for name in names if os.environ.get(name) != before.get(name)}

    try:
        yield changes
    finally:
        _set_variables({name: before.get(name) for name in changes()})


@contextlib.contextmanager
def _with_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Set these variables of this process for a while; others may be set meanwhile by whoever likes."""
    before = {name: os.environ.get(name) for name in variables}
    _set_variables(variables)
    try:
        yield
    finally:
        _set_variables(before)


def _set_variables(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """While processes are spawned: keep them from importing the program that runs here.

    A script that does not ask for its `__name__` would run again in each of them. They need nothing of it.
    """
    main = vars(sys.modules["__main__"])
    before: dict[str, Any] = {name: main[name] for name in ("__spec__", "__file__") if name in main}
    main["__spec__"] = None
    main.pop("__file__", None)
    try:
        yield
    finally:
        main.update(before)
