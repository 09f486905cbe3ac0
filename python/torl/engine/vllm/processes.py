"""The processes of an engine: telling them apart from others, and ending them."""

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

_END_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class EngineProcess:
    """One process of an engine; `started` tells it from a later process with the same id."""

    pid: int
    started: int

    @classmethod
    def from_pid(cls, pid: int) -> "EngineProcess":
        """The process that has this id now."""
        status = _status(pid)
        return cls(pid, 0 if status is None else int(status[19]))

    @property
    def is_alive(self) -> bool:
        """Whether it runs; one that is dead and not yet reaped does not, and a later one with its id is another."""
        status = _status(self.pid)
        return status is not None and status[0] != "Z" and int(status[19]) == self.started


def with_descendants(pids: Iterable[int]) -> list[EngineProcess]:
    """These processes, their children, the children's children, and so on, parents first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (status := _status(int(entry.name))) is not None:
            children.setdefault(int(status[1]), []).append(int(entry.name))
    family = list(pids)
    for pid in family:  # grows meanwhile
        family += children.get(pid, [])
    return [EngineProcess.from_pid(pid) for pid in family]


def end_processes(processes: Sequence[EngineProcess]) -> None:
    """Kill what is left, and wait until it has ended: a process that holds much memory takes a moment to die."""
    for process in processes:
        if process.is_alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + _END_SECONDS
    while any(process.is_alive for process in processes) and time.monotonic() < deadline:
        time.sleep(0.01)


def _status(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on; the second is the parent, the twentieth when it started."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
