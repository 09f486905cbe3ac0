"""Setup of every process that vLLM starts: environment variables, log file, and exit with its parent.

vLLM starts its processes without a parameter for their environment. Variables set in the controller would also reach
the learner and the sandbox. Therefore a `ProcessSetup` is part of vLLM's configuration, which every process of the
engine receives pickled at its start, and takes effect when it is unpickled, before the process runs anything else.
Imports neither torch nor vLLM.
"""

import logging
import os
import pickle
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
from torl.base.runtime.processes.hangs import enable_stack_dumps

LOG_VARIABLE = "TORL_ENGINE_LOG"
"""Environment variable of the log file, for a process that has not received its setup yet."""


@dataclass(frozen=True)
class ProcessSetup:
    """Setup of the engine's processes, passed as vLLM's `additional_config`."""

    log_path: str
    environment: Mapping[str, str | None]
    """Values of environment variables. None unsets a variable."""
    vocabulary: str
    """File of the vocabulary of the scheduler's scanners, pickled.

    The setup itself must fit into the pipe to a new process, 64 KiB: Python writes it before it listens to the process,
    and if that dies before it has read the rest, the write never ends.
    """
    announcements: str
    """Socket for announcements of the core (`torl.components.engine.vllm.messages`)."""
    cores: tuple[int, ...] = ()
    """CPU cores that the processes are bound to. Empty binds them to none."""
    _spawned: list[Any] = field(default_factory=list, repr=False, compare=False)
    """`multiprocessing`'s handles of the processes that received this setup. Not pickled."""

    def read_vocabulary(self) -> Vocabulary:
        """Read the vocabulary."""
        vocabulary: Vocabulary = pickle.loads(Path(self.vocabulary).read_bytes())
        return vocabulary

    def started(self) -> list[int]:
        """Ids of the processes that were started with this setup and are not known to have exited."""
        pids = [getattr(popen, "pid", None) for popen in self._spawned if popen.returncode is None]
        return [pid for pid in pids if pid is not None]

    def compute_hash(self) -> str:
        """Return a constant: vLLM hashes everything that may change a compiled graph, and this setup does not."""
        return "torl"

    def __copy__(self) -> "ProcessSetup":
        return self

    def __deepcopy__(self, memo: Any) -> "ProcessSetup":
        return self  # a copy would not know the processes that received it

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
    vocabulary: str,
    announcements: str,
    cores: tuple[int, ...],
) -> ProcessSetup:
    if parent != os.getpid():  # not for a copy within one process
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
    tempfile.tempdir = None  # determined again, from the new environment
    _configure_torch(environment)
    os.setpgrp()  # Ctrl-C in a terminal reaches only the controller, which closes its engine
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    log_to_file(log_path)
    enable_stack_dumps()
    threading.Thread(target=_exit_with, args=(parent,), name="torl-parent-watch", daemon=True).start()


def _configure_torch(environment: Mapping[str, str | None]) -> None:
    """Apply variables to torch, which reads them at its import. vLLM's core process has imported it already."""
    if (torch := sys.modules.get("torch")) is not None and (threads := environment.get("OMP_NUM_THREADS")) is not None:
        torch.set_num_threads(int(threads))
    if (settings := sys.modules.get("torch._dynamo.config")) is not None and "TORCHDYNAMO_DISABLE" in environment:
        settings.disable = environment["TORCHDYNAMO_DISABLE"] == "1"  # type: ignore[attr-defined]


def _exit_with(parent: int) -> None:
    """Exit when the parent process has exited, even by SIGKILL."""
    try:
        descriptor = os.pidfd_open(parent)
    except ProcessLookupError:
        os._exit(1)
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    poll.poll()
    os._exit(1)


def log_to_file(path: Path | str) -> None:
    """Redirect vLLM's log of this process to a file."""
    logger = logging.getLogger("vllm")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(levelname)s %(asctime)s [%(name)s] %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
