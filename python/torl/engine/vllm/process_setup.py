"""What has to happen first in every process that vLLM starts: environment, log file, and an end with its parent.

vLLM starts its processes itself and takes no environment for them. Setting the variables in the controller
would hand them to the learner and the sandbox as well. So a `ProcessSetup` travels inside vLLM's own
configuration, which every process of the engine is sent pickled when it starts, and does its work when it is
unpickled: before the process runs anything else, and nowhere but there. No torch, no vLLM.
"""

import logging
import os
import select
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.context import get_spawning_popen
from pathlib import Path
from typing import Any

from torl._core import Vocabulary
from torl.runtime.processes.stacks import enable_stack_dumps


@dataclass(frozen=True)
class ProcessSetup:
    """Carried as vLLM's `additional_config`; `environment` maps a variable to its value, or to None to unset it."""

    log_path: str
    environment: Mapping[str, str | None]
    vocabulary: Vocabulary
    """For the scanners of the scheduler."""
    announcements: str
    """Where its core announces code blocks and steps (`torl.engine.vllm.announcements`)."""
    cores: tuple[int, ...] = ()
    """What the processes compute on, of the machine's cores; all where there are none."""
    _spawned: list[Any] = field(default_factory=list, repr=False, compare=False)
    """The processes that were sent this, as `multiprocessing` knows them. Stays at home."""

    def started(self) -> list[int]:
        """Ids of the processes that were started with this setup and have not been seen to end."""
        pids = [getattr(popen, "pid", None) for popen in self._spawned if popen.returncode is None]
        return [pid for pid in pids if pid is not None]

    def compute_hash(self) -> str:
        """vLLM asks this of anything that may change a compiled graph; nothing here does."""
        return "torl"

    def __copy__(self) -> "ProcessSetup":
        return self

    def __deepcopy__(self, memo: Any) -> "ProcessSetup":
        return self  # a copy would not tell which processes it was sent to

    def __reduce__(self) -> tuple[Any, ...]:
        if (spawning := get_spawning_popen()) is not None:
            self._spawned.append(spawning)
        return _unpickle, (
            os.getpid(),
            self.log_path,
            dict(self.environment),
            self.vocabulary,
            self.announcements,
            self.cores,
        )


def _unpickle(
    parent: int,
    log_path: str,
    environment: dict[str, str | None],
    vocabulary: Vocabulary,
    announcements: str,
    cores: tuple[int, ...],
) -> ProcessSetup:
    if parent != os.getpid():  # a copy made inside one process is no new process
        if cores:
            os.sched_setaffinity(0, cores)
        _set_up(parent, log_path, environment)
    return ProcessSetup(log_path, environment, vocabulary, announcements, cores)


def _set_up(parent: int, log_path: str, environment: Mapping[str, str | None]) -> None:
    for name, value in environment.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    tempfile.tempdir = None  # asked anew, after the environment
    _tell_torch(environment)
    os.setpgrp()  # Ctrl-C in a terminal is for the controller, which ends its engine in order
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    log_to_file(log_path)
    enable_stack_dumps()
    threading.Thread(target=_end_with, args=(parent,), name="torl-parent-watch", daemon=True).start()


def _tell_torch(environment: Mapping[str, str | None]) -> None:
    """Torch reads its variables when it is imported, and vLLM's core process has imported it by now."""
    if (torch := sys.modules.get("torch")) is not None and (threads := environment.get("OMP_NUM_THREADS")) is not None:
        torch.set_num_threads(int(threads))
    if (settings := sys.modules.get("torch._dynamo.config")) is not None and "TORCHDYNAMO_DISABLE" in environment:
        settings.disable = environment["TORCHDYNAMO_DISABLE"] == "1"  # type: ignore[attr-defined]


def _end_with(parent: int) -> None:
    """End this process when its parent has ended, however it did: a SIGKILL leaves no orphan behind."""
    try:
        descriptor = os.pidfd_open(parent)
    except ProcessLookupError:
        os._exit(1)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    poll.poll()
    os._exit(1)


def log_to_file(path: Path | str) -> None:
    """Send what vLLM logs in this process to a file, and nowhere else."""
    logger = logging.getLogger("vllm")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(levelname)s %(asctime)s [%(name)s] %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
