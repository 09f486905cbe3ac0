"""The processes of an engine, and the directory of their sockets and temporary files."""

import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from torl.errors import EngineError

_END_TIMEOUT_SECONDS = 10.0
_PREFIX = "torl-engine-"
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


class EngineDirectory:
    """A private directory for the sockets and temporary files of an engine's processes.

    It is locked while its controller lives, so that the next engine can recognize and remove the directory of a killed
    controller.
    """

    def __init__(self) -> None:
        self._path: Path | None = None
        self._lock = -1

    def open(self) -> Path:
        """Create the directory, and remove directories of dead controllers.

        Raises:
            EngineError: The path of the temporary directory is too long for sockets.
        """
        _remove_abandoned()
        while self._path is None:
            path = Path(tempfile.mkdtemp(prefix=_PREFIX))
            lock = _open(path)
            if lock is not None:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if path.exists():
                    self._path, self._lock = path, lock
                else:  # another starting controller removed it before it was locked
                    os.close(lock)
        if len(os.fsencode(self._path)) + _MAX_NAME > _MAX_PATH:
            self.close()
            raise EngineError(f"{tempfile.gettempdir()}: its path is too long for sockets: set TMPDIR to a shorter one")
        return self._path

    def close(self) -> None:
        """Remove the directory with its contents. Safe to call twice."""
        path, self._path = self._path, None
        if path is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(self._lock)


def _remove_abandoned() -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        lock = _open(path)
        if lock is None:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:  # its controller lives
            pass
        finally:
            os.close(lock)


def _open(path: Path) -> int | None:
    """Open a directory; return None if it belongs to another user or no longer exists."""
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
