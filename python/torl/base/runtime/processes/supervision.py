"""Run asynchronous programs to completion, failure or a signal; run user-supplied functions in threads."""

import asyncio
import contextlib
import contextvars
import inspect
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final, NoReturn, TypeVar

from torl.base.errors import ComponentError, ToolUnavailableError, TorlError

Result = TypeVar("Result")

MAX_ABANDONED: Final = 1024
"""Number of cancelled calls of functions that may still run. Their threads cannot be stopped."""
_abandoned: list[threading.Thread] = []


def run_until_done(work: Coroutine[Any, Any, object]) -> int:
    """Run `work` and return the exit status of the process.

    The status is 0 on success, 1 after a `TorlError`, whose message goes to standard error, and 128 + n after signal n.
    SIGINT and SIGTERM cancel the work, which closes its components; further signals have no effect. Any other
    exception is a defect of torl and is raised with its traceback.
    """
    try:
        received = asyncio.run(_run(work))
    except TorlError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except BaseExceptionGroup as group:
        if has_defect(group):
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
    """Return the result of `work`. If a watcher raises first, cancel the work and raise that error."""
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


def has_defect(group: BaseExceptionGroup[BaseException]) -> bool:
    """Whether a group of errors has one that is not a `TorlError`, and none of a component, which explains others."""
    return group.subgroup(ComponentError) is None and group.split(TorlError)[1] is not None


def first_error(error: BaseException) -> BaseException:
    """Return the first `TorlError` of a group of errors, or else its first error. Other errors are returned as is."""
    if isinstance(error, BaseExceptionGroup):
        error = error.subgroup(ComponentError) or error.subgroup(TorlError) or error
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


@contextlib.asynccontextmanager
async def task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """Wait for tasks as `asyncio.TaskGroup` does, but raise the first error alone."""
    try:
        async with asyncio.TaskGroup() as tasks:
            yield tasks
    except BaseExceptionGroup as errors:
        raise first_error(errors) from errors


async def call_function(function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
    """Call a coroutine function in the event loop, and any other function in a thread."""
    if inspect.iscoroutinefunction(function):
        return await function(*arguments, **named)
    return await run_in_thread(function, *arguments, **named)


async def run_in_thread(function: Callable[..., Result], /, *arguments: Any, **named: Any) -> Result:
    """Call a user-supplied function in a new thread and return its result.

    A function that never returns neither occupies asyncio's small thread pool nor keeps the process from exiting.

    Raises:
        RuntimeError: The function raised an exception that is not an `Exception`, or `StopIteration`, which a
            coroutine cannot raise.
        ToolUnavailableError: The system starts no further thread, or too many calls still run after their timeouts.
    """
    name = f"call of {getattr(function, '__name__', function)}"
    if len(_abandoned) >= MAX_ABANDONED:
        _abandoned[:] = [thread for thread in _abandoned if thread.is_alive()]
    if len(_abandoned) >= MAX_ABANDONED:
        raise ToolUnavailableError(
            f"{len(_abandoned)} calls of functions still run after their timeouts, before the {name}: "
            "set timeouts in what these functions wait for"
        )
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[Result] = loop.create_future()
    context = contextvars.copy_context()

    def finish(result: Any, error: Exception | None) -> None:
        if outcome.done():  # cancelled
            return
        if error is None:
            outcome.set_result(result)
        else:
            outcome.set_exception(error)

    def run() -> None:
        result: Any = None
        error: Exception | None = None
        try:
            result = context.run(function, *arguments, **named)
        except StopIteration as raised:
            error = _as_runtime_error(raised)
        except Exception as raised:
            error = raised
        except BaseException as raised:
            error = _as_runtime_error(raised)
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(finish, result, error)

    thread = threading.Thread(target=run, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise ToolUnavailableError(f"no thread for the {name}: {error}") from error
    try:
        return await outcome
    except asyncio.CancelledError:
        _abandoned.append(thread)
        raise


def _as_runtime_error(raised: BaseException) -> RuntimeError:
    error = RuntimeError(f"{type(raised).__name__}: {raised}").with_traceback(raised.__traceback__)
    error.__cause__ = raised
    return error
