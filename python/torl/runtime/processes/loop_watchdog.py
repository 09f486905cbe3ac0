"""Noticing that this process's own event loop stands still, where nothing that runs in it could."""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from torl.runtime.processes.stacks import dump_own_stacks

_POLLS = 20  # in the time of the limit, one second apart at most


@asynccontextmanager
async def watch_event_loop(log: Path, limit_seconds: float, setting: str) -> AsyncIterator[None]:
    """End this process, with status 1 and its stacks in `log`, when the loop has not turned for the limit.

    Time is counted in the looks of a thread: a process that was stopped as a whole has not hung.
    """
    pause = min(1.0, limit_seconds / _POLLS)
    loop = asyncio.get_running_loop()
    silent = [0.0]
    over = threading.Event()

    def look() -> None:
        while not over.wait(pause):
            silent[0] += pause
            if silent[0] >= limit_seconds:
                dump_own_stacks(log, loop)
                message = f"the controller's event loop stood still for {limit_seconds:g} s ({setting})"
                print(f"error: {message}; its stacks are in {log}", file=sys.stderr, flush=True)
                os._exit(1)  # its children end with it

    async def beat() -> None:
        while True:
            silent[0] = 0.0
            await asyncio.sleep(pause)

    watcher = threading.Thread(target=look, name="torl-loop-watch", daemon=True)
    watcher.start()
    beating = asyncio.create_task(beat())
    try:
        yield
    finally:
        over.set()
        beating.cancel()
        with suppress(asyncio.CancelledError):
            await beating
