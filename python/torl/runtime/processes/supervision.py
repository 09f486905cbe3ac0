"""Running an asynchronous program to one of its ends: done, failed with a clear message, or told to stop."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Coroutine
from typing import Any, NoReturn, TypeVar

from torl.errors import ComponentError, TorlError

Result = TypeVar("Result")


def run_until_done(work: Coroutine[Any, Any, object]) -> int:
    """Run `work` and return the exit status of the process.

    0 when it ended, 1 when it raised a `TorlError` (whose message goes to standard error), 128 + n after signal n:
    SIGINT and SIGTERM cancel the work, which closes its parts on the way out; a second signal changes nothing. Any
    other exception is a defect of torl and is raised with its traceback.
    """
    try:
        received = asyncio.run(_run(work))
    except TorlError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except BaseExceptionGroup as group:
        if group.subgroup(ComponentError) is None and group.split(TorlError)[1] is not None:
            raise
        print(f"error: {first_error(group)}", file=sys.stderr)
        return 1
    if received is None:
        return 0
    print(f"stopped by {received.name}", file=sys.stderr)
    return 128 + received


async def _run(work: Coroutine[Any, Any, object]) -> signal.Signals | None:
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    received: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        if not received:
            received.append(number)
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    try:
        await task
    except asyncio.CancelledError:
        if not received:
            raise
    return received[0] if received else None


async def run_with_watchers(work: Coroutine[Any, Any, Result], *watchers: Coroutine[Any, Any, NoReturn]) -> Result:
    """The result of `work`, unless a watcher raises first: then the work is cancelled and that error is raised."""
    task = asyncio.ensure_future(work)
    watching = [asyncio.ensure_future(watcher) for watcher in watchers]
    try:
        await asyncio.wait([task, *watching], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            for watcher in watching:
                if watcher.done():
                    watcher.result()
        return await task
    finally:
        for each in (task, *watching):
            each.cancel()
        for each in (task, *watching):
            with contextlib.suppress(BaseException):
                await each


def first_error(error: BaseException) -> BaseException:
    """Of a group of errors the first that torl raised, where there is one: parts that run together fail together."""
    if isinstance(error, BaseExceptionGroup):
        error = error.subgroup(ComponentError) or error.subgroup(TorlError) or error
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
