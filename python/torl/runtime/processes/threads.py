"""Functions that somebody else wrote, in threads that nobody waits for."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

Result = TypeVar("Result")


async def run_in_thread(function: Callable[..., Result], /, *arguments: Any, **named: Any) -> Result:
    """The result of `function`, or what it raises, from a thread of its own.

    One that never returns takes no thread of asyncio's pool, which is small and everybody's, and does not keep the
    process from ending.

    Raises:
        RuntimeError: it raised what is no `Exception`, or `StopIteration`, which no coroutine can hand on.
    """
    loop = asyncio.get_running_loop()
    told: asyncio.Future[Result] = loop.create_future()
    context = contextvars.copy_context()

    def tell(result: Any, error: Exception | None) -> None:
        if told.done():  # given up
            return
        if error is None:
            told.set_result(result)
        else:
            told.set_exception(error)

    def run() -> None:
        result: Any = None
        error: Exception | None = None
        try:
            result = context.run(function, *arguments, **named)
        except StopIteration as raised:
            error = _other(raised)
        except Exception as raised:
            error = raised
        except BaseException as raised:
            error = _other(raised)
        with suppress(RuntimeError):  # the event loop has ended
            loop.call_soon_threadsafe(tell, result, error)

    threading.Thread(target=run, name=f"call of {getattr(function, '__name__', function)}", daemon=True).start()
    return await told


def _other(raised: BaseException) -> RuntimeError:
    error = RuntimeError(f"{type(raised).__name__}: {raised}")
    error.__cause__ = raised
    return error
