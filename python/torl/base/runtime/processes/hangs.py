"""Detect hangs, and write the stacks of a run's processes to their logs, to show where one occurred. No torch.

A hang is a component that answers no pending call, or an event loop that no longer runs. Time is measured in polls, so
that a process that was stopped, or busy, for long causes no false alarm.
"""

import asyncio
import faulthandler
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any, NoReturn

from torl.base.errors import HangError

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


_POLLS = 20  # within the limit, at most one second apart


class PendingCalls:
    """The pending calls of user-supplied components: tools, an environment, a reward.

    A component may make its calls wait for each other, for hours if there are thousands. A long wait is therefore a
    hang only if the component answers no other call during it.
    """

    def __init__(self) -> None:
        self._seconds = 0.0  # that `watch` has measured
        self._calls: dict[object, tuple[str, float]] = {}  # component and start of each call
        self._answers: dict[str, float] = {}  # time of the last answer of each component

    @contextmanager
    def open(self, component: str) -> Iterator[None]:
        """Count a call as pending until the block ends. An exception is an answer too, unless it cancels the call."""
        call = object()
        self._calls[call] = (component, self._seconds)
        try:
            yield
        except Exception:
            self._answers[component] = self._seconds
            raise
        else:
            self._answers[component] = self._seconds
        finally:
            del self._calls[call]

    async def watch(self, limit_seconds: float, setting: str) -> NoReturn:
        """Wait until a component has left a call pending for the limit and answered no other, then raise `HangError`.

        Args:
            limit_seconds: Time limit.
            setting: Setting that defines the limit.
        """
        pause = min(1.0, limit_seconds / _POLLS)
        while True:
            await asyncio.sleep(pause)
            self._seconds += pause
            for component, start in self._calls.values():
                if self._seconds - max(start, self._answers.get(component, start)) >= limit_seconds:
                    raise HangError(f"{component} did not respond within {limit_seconds:g} s ({setting})")


@asynccontextmanager
async def watch_event_loop(log: Path, limit_seconds: float, setting: str) -> AsyncIterator[None]:
    """End this process with status 1 if its event loop is blocked for the limit. A thread watches the loop.

    Args:
        log: File that the stacks of this process are appended to.
        limit_seconds: Time limit.
        setting: Setting that defines the limit.
    """
    pause = min(1.0, limit_seconds / _POLLS)
    loop = asyncio.get_running_loop()
    blocked = [0.0]
    finished = threading.Event()

    def poll() -> None:
        while not finished.wait(pause):
            blocked[0] += pause
            if blocked[0] >= limit_seconds:
                dump_own_stacks(log, loop)
                message = f"the controller's event loop was blocked for {limit_seconds:g} s ({setting})"
                print(f"error: {message}; its stacks are in {log}", file=sys.stderr, flush=True)
                os._exit(1)  # the child processes exit as well

    async def beat() -> None:
        while True:
            blocked[0] = 0.0
            await asyncio.sleep(pause)

    watcher = threading.Thread(target=poll, name="torl-loop-watch", daemon=True)
    watcher.start()
    beating = asyncio.create_task(beat())
    try:
        yield
    finally:
        finished.set()
        beating.cancel()
        with suppress(asyncio.CancelledError):
            await beating
