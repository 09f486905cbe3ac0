"""Starting vLLM in a thread, with a private environment, so that the start can be cancelled at any time."""

import asyncio
import contextlib
import importlib
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torl.base.runtime.processes.resources import uncollected_imports
from torl.components.engine.protocol import EngineSetup
from torl.components.engine.vllm.arguments import EngineDevices, engine_arguments, process_environment, socket_variables
from torl.components.engine.vllm.options import VllmOptions
from torl.components.engine.vllm.process_setup import LOG_VARIABLE, ProcessSetup, log_to_file
from torl.components.engine.vllm.processes import end_processes, with_descendants

# In parts, because a start cannot be cancelled during an import: together they take about 10 s.
_IMPORTS = ("torch", "transformers", "vllm", "vllm.config", "vllm.engine.arg_utils", "vllm.v1.engine.async_llm")
_POLL_SECONDS = 0.05
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "VLLM_OMP_NUM_THREADS_SET_BY_VLLM")
_environment_lock = threading.Lock()


class _CancelledError(Exception):
    """The start was cancelled."""


@dataclass(frozen=True, slots=True)
class LaunchPaths:
    """The number of a replica, and its paths."""

    number: int
    directory: Path
    """Directory of sockets and temporary files."""
    log_path: Path
    announcements: str
    """Socket for announcements."""


class Launch:
    """A start of vLLM's AsyncLLM."""

    def __init__(self, setup: EngineSetup, options: VllmOptions, paths: LaunchPaths) -> None:
        self._setup = setup
        self._options = options
        self._paths = paths
        self._cancelled = threading.Event()
        self._process_setup: ProcessSetup | None = None

    async def run(self) -> tuple[Any, EngineDevices]:
        """Start the AsyncLLM; return it with its devices. If cancelled, kill the started processes first.

        Raises:
            ConfigError: The options contain an invalid argument.
            Exception: vLLM failed to start and has ended its processes.
        """
        # In a thread, because vLLM blocks until its processes are up.
        building = asyncio.get_running_loop().run_in_executor(None, self._build)
        try:
            return await asyncio.shield(building)
        except asyncio.CancelledError:
            self._cancelled.set()
            while not building.done():
                await asyncio.to_thread(self._kill)
                await asyncio.wait([building], timeout=_POLL_SECONDS)
            if building.exception() is None:
                await asyncio.to_thread(building.result()[0].shutdown, 0.0)
            raise

    def _kill(self) -> None:
        """Kill the started processes, which makes vLLM's start fail."""
        if self._process_setup is not None:
            end_processes(with_descendants(self._process_setup.started()))

    def _build(self) -> tuple[Any, EngineDevices]:
        """Build the AsyncLLM without changing this process's environment.

        vLLM writes to `os.environ` for the processes that it starts. The `ProcessSetup` passes these changes to the
        processes, and only to them.
        """
        log_to_file(self._setup.log_path)  # before the import, which logs
        with ThreadPoolExecutor(1, thread_name_prefix="vllm-start") as starts:
            while not _environment_lock.acquire(timeout=_POLL_SECONDS):
                self._check_cancelled()
            try:
                starting, devices = self._spawn(starts)
            finally:
                _environment_lock.release()
            return starting.result(), devices

    def _spawn(self, starts: ThreadPoolExecutor) -> tuple[Future[Any], EngineDevices]:
        """Build the AsyncLLM in a thread and return once its core is spawned, so that replicas load in parallel."""
        with _private_environment() as changes:
            if _IMPORTS[-1] not in sys.modules:
                self._import()
            config, setup, devices = self._vllm_config(changes)
        self._check_cancelled()
        # A fork of a process with threads and an event loop may deadlock, and would not unpickle the setup.
        variables = {
            "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
            LOG_VARIABLE: str(self._paths.log_path.resolve()),
            **socket_variables(self._paths.directory),
        }
        with _with_variables(variables), _with_main("torl.components.engine.vllm.spawned_main"):
            threads = _thread_variables()
            starting = starts.submit(_async_llm, config)
            while not starting.done() and not (setup.started() and _thread_variables() == threads):
                time.sleep(_POLL_SECONDS)
        return starting, devices

    def _import(self) -> None:
        # In a separate thread: some library keeps an exception of its import, and with the exception every frame below
        # it, which would keep the AsyncLLM alive until the interpreter exits.
        with uncollected_imports(), ThreadPoolExecutor(1, thread_name_prefix="vllm-import") as imports:
            for module in _IMPORTS:
                self._check_cancelled()
                imports.submit(importlib.import_module, module).result()

    def _vllm_config(self, changes: Callable[[], Mapping[str, str | None]]) -> tuple[Any, ProcessSetup, EngineDevices]:
        from vllm.config.logging import LoggingConfig
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.platforms import current_platform

        on_cpu = current_platform.is_cpu()
        devices = EngineDevices.from_setup(self._paths.number, self._setup, self._options, on_cpu=on_cpu)
        known = [field.name for field in fields(AsyncEngineArgs)]
        arguments = engine_arguments(self._setup, self._options, devices, known)
        engine_args = AsyncEngineArgs(**arguments, logging_config=LoggingConfig(configure_logging=False))
        config = engine_args.create_engine_config()
        environment = process_environment(self._options, self._paths.directory, devices)
        vocabulary = self._paths.directory / "vocabulary"
        vocabulary.write_bytes(pickle.dumps(self._setup.vocabulary))
        self._process_setup = setup = ProcessSetup(
            str(self._paths.log_path.resolve()),
            {**changes(), **environment},
            str(vocabulary),
            self._paths.announcements,
            devices.cores,
        )
        config.additional_config = setup
        scheduler = "AsyncTurnScheduler" if config.scheduler_config.async_scheduling else "TurnScheduler"
        config.scheduler_config.scheduler_cls = f"torl.components.engine.vllm.scheduler.{scheduler}"
        return config, setup, devices

    def _check_cancelled(self) -> None:
        if self._cancelled.is_set():
            raise _CancelledError


def _async_llm(config: Any) -> Any:
    from vllm.v1.engine.async_llm import AsyncLLM

    return AsyncLLM.from_vllm_config(config, disable_log_stats=True)


def _thread_variables() -> list[str | None]:
    """The variables that vLLM sets in this process's environment while it spawns a core."""
    return [os.environ.get(name) for name in _THREAD_VARIABLES]


@contextlib.contextmanager
def _private_environment() -> Iterator[Callable[[], Mapping[str, str | None]]]:
    """Restore `os.environ` at the end. Yields a function that returns the changes so far."""
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
    """Set these variables in this process, and restore them at the end. Other variables may change."""
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
def _with_main(module: str) -> Iterator[None]:
    """Let spawned processes run a module in place of this process's main program, from which they need nothing."""
    main = vars(sys.modules["__main__"])
    before: dict[str, Any] = {name: main[name] for name in ("__spec__", "__file__") if name in main}
    main["__spec__"] = find_spec(module)
    main.pop("__file__", None)
    try:
        yield
    finally:
        main.update(before)
