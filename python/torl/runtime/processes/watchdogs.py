"""Detect hangs of this process: a pending call that is never answered, an event loop that no longer runs.

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

from torl.errors import HangError
from torl.runtime.processes.stacks import dump_own_stacks

_POLLS = 20  # within the limit, at most one second apart


class PendingCalls:
    """The pending calls of user-supplied components: tools, a reward."""

    def __init__(self) -> None:
        self._calls: dict[object, tuple[str, float]] = {}  # component, and seconds since the start of the call

    @contextmanager
    def open(self, component: str) -> Iterator[None]:
        """Count a call as pending until the block ends."""
        call = object()
        self._calls[call] = (component, 0.0)
        try:
            yield
        finally:
            del self._calls[call]

    async def watch(self, limit_seconds: float, setting: str) -> NoReturn:
        """Wait until a call has been pending for the limit, then raise `HangError`.

        Args:
            limit_seconds: Time limit of a call.
            setting: Setting that defines the limit.
        """
        pause = min(1.0, limit_seconds / _POLLS)
        while True:
            await asyncio.sleep(pause)
            for call, (component, seconds) in list(self._calls.items()):
                self._calls[call] = (component, seconds + pause)
                if seconds + pause >= limit_seconds:
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
