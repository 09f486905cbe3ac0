"""What the processes of a run are doing, written down when one of them makes no progress. No torch."""

import asyncio
import faulthandler
import os
import signal
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

STACK_SIGNAL = signal.SIGUSR1
_ANSWER_SECONDS = 5.0  # a process that is stopped, or deep in the kernel, gives none
_LOOK_SECONDS = 0.02
_QUIET_LOOKS = 5  # in a row in which a log has not grown: what began to be written has been
_ONE_PROCESS = b"Current thread 0x"  # begins the last stack of each process


def answer_stack_requests() -> None:
    """In a child: write the stacks of all threads to standard error whenever the parent asks, whatever runs then."""
    faulthandler.register(STACK_SIGNAL, all_threads=True, chain=False)


def request_stacks(logs: Mapping[Path, Sequence[int]]) -> list[int]:
    """Have processes write their stacks to the logs that their standard error goes to; returns those that did not.

    `logs` has the ids of the processes by their logs. Processes that would not understand the signal are not sent it.
    """
    sizes = {log: log.stat().st_size if log.exists() else 0 for log in logs}
    asked = {log: [pid for pid in pids if _understands(pid)] for log, pids in logs.items()}
    for pid in (pid for pids in asked.values() for pid in pids):
        try:
            os.kill(pid, STACK_SIGNAL)
        except ProcessLookupError:
            continue
    deadline = time.monotonic() + _ANSWER_SECONDS
    silent = {log: pids for log, pids in asked.items() if pids}
    lengths, quiet = dict(sizes), 0
    while (silent or quiet < _QUIET_LOOKS) and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        silent = {log: pids for log, pids in silent.items() if _answers(log, sizes[log]) < len(pids)}
        before, lengths = lengths, {log: log.stat().st_size for log, pids in asked.items() if pids}
        quiet = quiet + 1 if lengths == before else 0
    unasked = [pid for log, pids in logs.items() for pid in pids if pid not in asked[log]]
    return [*unasked, *(pid for pids in silent.values() for pid in pids)]


def write_own_stacks(path: Path, loop: asyncio.AbstractEventLoop) -> None:
    """Add the stacks of this process's threads, and those of the tasks of its event loop, to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        # Thousands of episodes wait at a handful of places.
        for stack, tasks in Counter(map(_stack_of, asyncio.all_tasks(loop))).most_common():
            file.write(f"\n{tasks} tasks:\n{stack}\n")


def _stack_of(task: "asyncio.Task[object]") -> str:
    lines = []
    coroutine: Any = task.get_coro()
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        lines.append(f'  File "{frame.f_code.co_filename}", line {frame.f_lineno} in {frame.f_code.co_name}')
        coroutine = getattr(coroutine, "cr_await", None)
    return "\n".join(lines)


def _understands(pid: int) -> bool:
    """Whether a process has a handler for the signal: without one it would end it."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (STACK_SIGNAL - 1) & 1)


def _answers(log: Path, start: int) -> int:
    with log.open("rb") as file:
        file.seek(start)
        return file.read().count(_ONE_PROCESS)
