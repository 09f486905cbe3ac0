"""An object to place on a node."""

import asyncio
import os
from collections.abc import AsyncGenerator

from torl.base.errors import EngineError, EngineHungError


class Something:
    """An actor on a node."""

    def __init__(self) -> None:
        self.given_up: list[str] = []
        self.waits = 0

    async def add(self, one: int, other: int) -> int:
        return one + other

    async def where(self) -> int:
        return os.getpid()

    async def hang(self) -> None:
        raise EngineHungError("no token came")

    async def divide(self) -> float:
        return 1 / 0

    async def wait(self) -> None:
        self.waits += 1
        try:
            await asyncio.Future()
        except asyncio.CancelledError:
            self.given_up.append("wait")
            raise

    async def count(self) -> AsyncGenerator[int, None]:
        try:
            for number in range(3):
                yield number
            await asyncio.Future()
        except (asyncio.CancelledError, GeneratorExit):
            self.given_up.append("count")
            raise

    async def fail_after_one(self) -> AsyncGenerator[int, None]:
        yield 1
        raise EngineError("that was all")

    async def gave_up(self) -> list[str]:
        return self.given_up
