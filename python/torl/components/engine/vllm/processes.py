"""The processes of an engine: their end, their stalls, and the directory of their sockets and temporary files."""

import asyncio
import contextlib
import logging
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torl.base.errors import EngineError
from torl.base.runtime.processes.resources import ScratchDirectory
from torl.components.engine.protocol import WATCH_SECONDS

_logger = logging.getLogger(__name__)
_END_TIMEOUT_SECONDS = 10.0
_MAX_NAME = 37  # of a socket in the directory: a slash and a UUID
_MAX_PATH = 107  # of a socket, on Linux


@dataclass(frozen=True, slots=True)
class EngineProcess:
    """One process of an engine."""

    pid: int
    started: int
    """Start time, which differs from the start time of a later process with the same id."""

    @classmethod
    def from_pid(cls, pid: int) -> "EngineProcess":
        """The process that has this id now."""
        status = _status(pid)
        return cls(pid, 0 if status is None else int(status[19]))

    @property
    def is_alive(self) -> bool:
        """Whether the process runs. A zombie does not."""
        status = _status(self.pid)
        return status is not None and status[0] != "Z" and int(status[19]) == self.started


def with_descendants(pids: Iterable[int]) -> list[EngineProcess]:
    """The given processes with all their descendants, parents first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (status := _status(int(entry.name))) is not None:
            children.setdefault(int(status[1]), []).append(int(entry.name))
    family = list(pids)
    for pid in family:  # grows during the loop
        family += children.get(pid, [])
    return [EngineProcess.from_pid(pid) for pid in family]


def end_processes(processes: Sequence[EngineProcess]) -> None:
    """Kill the processes that are alive, and wait until they have exited: freeing much memory takes a moment."""
    for process in processes:
        if process.is_alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + _END_TIMEOUT_SECONDS
    while any(process.is_alive for process in processes) and time.monotonic() < deadline:
        time.sleep(0.01)


def _status(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on: the second is the parent, the twentieth the start time."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


class EngineDirectory(ScratchDirectory):
    """A private directory for the sockets and temporary files of an engine's processes."""

    def __init__(self) -> None:
        """Choose its name."""
        super().__init__("torl-engine-")

    def open(self) -> Path:
        """Create the directory, and remove directories of dead controllers.

        Raises:
            EngineError: The path of the temporary directory is too long for sockets.
        """
        path = super().open()
        if len(os.fsencode(path)) + _MAX_NAME > _MAX_PATH:
            self.close()
            raise EngineError(f"{tempfile.gettempdir()}: its path is too long for sockets: set TMPDIR to a shorter one")
        return path


_WARNING_FRACTION = 5  # a warning comes after this part of the timeout
_POLLS = 20  # in the time of the timeout, one second apart at most


async def fail_calls_on_engine_death(llm: Any) -> None:
    """Wait until the AsyncLLM has lost an engine, then fail every pending call of a method.

    vLLM fails the requests whose tokens it awaits. It leaves the callers of `collective_rpc`, `pause_generation` and
    similar methods waiting forever, and every request sent before the first reply to `get_supported_tasks`.
    """
    from vllm.v1.engine.exceptions import EngineDeadError

    while True:
        await asyncio.sleep(WATCH_SECONDS)
        if llm.errored:
            break
    for result in list(llm.engine_core.utility_results.values()):
        if not result.done():
            result.set_exception(EngineDeadError())


class StallWatch:
    """The time for which an engine has computed nothing despite pending work."""

    def __init__(self, timeout_seconds: float) -> None:
        self._stalled_seconds = 0.0
        self._timeout = timeout_seconds

    def step(self) -> None:
        """Record that the engine has computed."""
        self._stalled_seconds = 0.0

    async def wait(self, pending_work: Callable[[], str | None]) -> str:
        """Wait until the engine has stalled for the timeout; return a description. Each stall logs one warning first.

        Time is measured in polls, so that a stopped or busy controller causes no false alarm.

        Args:
            pending_work: Returns a description of the work that the engine should be doing, or None if it is idle.
        """
        interval = min(1.0, self._timeout / _POLLS)
        while True:
            await asyncio.sleep(interval)
            work = pending_work()
            if work is None:
                self._stalled_seconds = 0.0
                continue
            before = self._stalled_seconds
            self._stalled_seconds += interval
            stall = f"no token came for {self._stalled_seconds:.0f} s although {work}"
            if before < self._timeout / _WARNING_FRACTION <= self._stalled_seconds:
                _logger.warning(
                    "%s; the engine is stopped after %g s (half of rollout.stall_timeout_seconds)", stall, self._timeout
                )
            if self._stalled_seconds >= self._timeout:
                return stall
