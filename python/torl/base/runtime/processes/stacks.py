"""Write the stacks of a run's processes to their logs, to show where a hang occurred. No torch."""

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
_RESPONSE_SECONDS = 5.0  # for each process; one that is stopped, or blocked in the kernel, never responds
_POLL_SECONDS = 0.02
_QUIET_POLLS = 5  # consecutive polls without growth of a log after which its stacks are complete
_LAST_STACK = b"Current thread 0x"  # begins the last stack of a process


def enable_stack_dumps() -> None:
    """In a child: write the stacks of all threads to standard error whenever the parent requests them."""
    faulthandler.register(STACK_SIGNAL, all_threads=True, chain=False)


def dump_stacks(logs: Mapping[Path, Sequence[int]]) -> list[int]:
    """Have processes write their stacks to their logs; returns the processes that did not.

    Args:
        logs: Process ids by the log that their standard error goes to. The processes of one log write one after
            another, so that their stacks do not mix. Processes without a handler receive no signal, which would end
            them.
    """
    batches = zip_longest(*logs.values())
    return [pid for batch in batches for pid in _dump_batch(dict(zip(logs, batch, strict=True)))]


def dump_own_stacks(path: Path, loop: asyncio.AbstractEventLoop) -> None:
    """Append the stacks of this process's threads, and of the tasks of its event loop, to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        # Thousands of episodes wait in a handful of places.
        for stack, tasks in Counter(map(_stack_of, asyncio.all_tasks(loop))).most_common():
            file.write(f"\n{tasks} tasks:\n{stack}\n")


def _stack_of(task: "asyncio.Task[object]") -> str:
    lines = []
    coroutine: Any = task.get_coro()
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        lines.append(f'  File "{frame.f_code.co_filename}", line {frame.f_lineno} in {frame.f_code.co_name}')
        coroutine = getattr(coroutine, "cr_await", None)
    return "\n".join(lines)


def _dump_batch(batch: Mapping[Path, int | None]) -> list[int]:
    """Send the request to at most one process of each log; returns those that did not respond in time."""
    pids = {log: pid for log, pid in batch.items() if pid is not None}
    sizes = {log: _size(log) for log in pids}  # before the request
    sizes = {log: size for log, size in sizes.items() if _send_request(pids[log])}
    lengths, quiet = dict(sizes), dict.fromkeys(sizes, 0)
    deadline = time.monotonic() + _RESPONSE_SECONDS
    while any(polls < _QUIET_POLLS for polls in quiet.values()) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        for log, before in lengths.items():
            lengths[log] = _size(log)
            quiet[log] = quiet[log] + 1 if lengths[log] == before and _has_stacks(log, sizes[log]) else 0
    return [pid for log, pid in pids.items() if log not in sizes or not _has_stacks(log, sizes[log])]


def _send_request(pid: int) -> bool:
    if not _handles_signal(pid):
        return False
    try:
        os.kill(pid, STACK_SIGNAL)
    except ProcessLookupError:
        return False
    return True


def _handles_signal(pid: int) -> bool:
    """Whether a process has a handler for the signal, which would end it otherwise."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (STACK_SIGNAL - 1) & 1)


def _has_stacks(log: Path, start: int) -> bool:
    with log.open("rb") as file:
        file.seek(start)
        return _LAST_STACK in file.read()


def _size(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0
