"""What the processes of a run are doing, written down when one of them makes no progress. No torch."""

import asyncio
import faulthandler
import os
import signal
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

STACK_SIGNAL = signal.SIGUSR1
_ANSWER_SECONDS = 5.0  # for each of one log's; a process that is stopped, or deep in the kernel, gives none
_POLL_SECONDS = 0.02
_QUIET_LOOKS = 5  # in a row in which a log has not grown: what began to be written has been
_LAST_STACK = b"Current thread 0x"  # begins the last stack of a process


def enable_stack_dumps() -> None:
    """In a child: write the stacks of all threads to standard error whenever the parent asks, whatever runs then."""
    faulthandler.register(STACK_SIGNAL, all_threads=True, chain=False)


def dump_stacks(logs: Mapping[Path, Sequence[int]]) -> list[int]:
    """Have processes write their stacks to the logs that their standard error goes to; returns those that did not.

    `logs` has the ids of the processes by their logs. Those of one log are asked one after the other: what two write at
    once is mixed. Processes that would not understand the signal are not sent it.
    """
    return [pid for asked in zip_longest(*logs.values()) for pid in _ask(dict(zip(logs, asked, strict=True)))]


def dump_own_stacks(path: Path, loop: asyncio.AbstractEventLoop) -> None:
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


def _ask(asked: Mapping[Path, int | None]) -> list[int]:
    """Ask at most one process of each log; returns those that have not answered in time."""
    pids = {log: pid for log, pid in asked.items() if pid is not None}
    sizes = {log: _size(log) for log in pids}  # before it is asked
    sizes = {log: size for log, size in sizes.items() if _send_request(pids[log])}
    lengths, quiet = dict(sizes), dict.fromkeys(sizes, 0)
    deadline = time.monotonic() + _ANSWER_SECONDS
    while any(looks < _QUIET_LOOKS for looks in quiet.values()) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        for log, before in lengths.items():
            lengths[log] = _size(log)
            quiet[log] = quiet[log] + 1 if lengths[log] == before and _is_answered(log, sizes[log]) else 0
    return [pid for log, pid in pids.items() if log not in sizes or not _is_answered(log, sizes[log])]


def _send_request(pid: int) -> bool:
    if not _understands(pid):
        return False
    try:
        os.kill(pid, STACK_SIGNAL)
    except ProcessLookupError:
        return False
    return True


def _understands(pid: int) -> bool:
    """Whether a process has a handler for the signal: without one it would end it."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (STACK_SIGNAL - 1) & 1)


def _is_answered(log: Path, start: int) -> bool:
    with log.open("rb") as file:
        file.seek(start)
        return _LAST_STACK in file.read()


def _size(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0
