"""Detect hangs of this process: a component that answers no pending call, an event loop that no longer runs.

Time is measured in polls, so that a process that was stopped, or busy, for long causes no false alarm.
"""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from torl.base.errors import HangError
from torl.base.runtime.processes.stacks import dump_own_stacks

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
