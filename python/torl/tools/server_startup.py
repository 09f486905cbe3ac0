"""The first answer of a server that a tool needs."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from torl.errors import ToolUnavailableError

Answer = TypeVar("Answer")

FIRST_ANSWER_SECONDS = 60.0
"""A server that has said nothing for so long will not."""


async def wait_for_server(answer: Awaitable[Answer], server: str) -> Answer:
    """What the server says; later ones are bounded as the calls that wait for them.

    Raises:
        ToolUnavailableError: it says nothing.
    """
    try:
        async with asyncio.timeout(FIRST_ANSWER_SECONDS):
            return await answer
    except TimeoutError as error:
        raise ToolUnavailableError(f"{server} gave no answer within {FIRST_ANSWER_SECONDS:g} s") from error
