"""Retries with exponential backoff, and the first reply of a server."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from torl.base.errors import ComponentError, ToolUnavailableError

Result = TypeVar("Result")

INITIAL_BACKOFF_SECONDS = 0.5
MAX_BACKOFF_SECONDS = 30.0
STARTUP_TIMEOUT_SECONDS = 60.0
"""Timeout of the first reply of a server."""


class TransientError(ToolUnavailableError):
    """A failed attempt, with the pause that the server asks for."""

    def __init__(self, reason: str, min_pause_seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.min_pause_seconds = min_pause_seconds


class Retries(Protocol):
    """Anything that counts retries."""

    retried: int


async def retry(
    attempt: Callable[[], Awaitable[Result]],
    *,
    retries: int,
    failure: str,
    counts: Retries,
    retry_component_errors: bool = False,
) -> Result:
    """Call `attempt` until it succeeds, and return its result.

    The pause before the first retry is 0.5 s. It doubles with every retry, up to 30 s, and is shortened by up to half
    at random.

    Args:
        attempt: Coroutine function that raises `ToolUnavailableError` if it may be retried.
        retries: Maximum number of retries.
        failure: Start of the message of the last error, such as "the tool 'search' returned no outcome".
        counts: Object that counts the retries.
        retry_component_errors: Whether an exception of a custom component is retried as well.

    Raises:
        ToolUnavailableError: All attempts failed.
    """
    for number in range(retries + 1):
        try:
            return await attempt()
        except ToolUnavailableError as error:
            if isinstance(error, ComponentError) and not retry_component_errors:
                raise
            if number == retries:
                attempts = f"{number + 1} attempts" if number else "one attempt"
                raise ToolUnavailableError(f"{failure} in {attempts}; the last error: {error}") from error
            backoff = INITIAL_BACKOFF_SECONDS * 2**number * random.uniform(0.5, 1)
            pause = max(backoff, getattr(error, "min_pause_seconds", 0.0))
            counts.retried += 1
        await asyncio.sleep(min(pause, MAX_BACKOFF_SECONDS))
    raise AssertionError("unreachable")


async def wait_for_server(reply: Awaitable[Result], server: str) -> Result:
    """Return the first reply of a server.

    Raises:
        ToolUnavailableError: The server did not reply in time.
    """
    try:
        async with asyncio.timeout(STARTUP_TIMEOUT_SECONDS):
            return await reply
    except TimeoutError as error:
        raise ToolUnavailableError(f"{server} did not reply within {STARTUP_TIMEOUT_SECONDS:g} s") from error
