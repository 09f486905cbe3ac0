"""On a node: an object whose methods are called by messages. Many calls share one message, in both directions."""

import asyncio
import pickle
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

from torl.runtime.cluster.messages import CallMessage, ResultMessage

_WAITING_BYTES = 4 << 20  # then streams wait until what is there has been fetched


class CallDispatcher:
    """Makes the calls, and keeps what they gave until it is fetched."""

    def __init__(self, held: Any) -> None:
        """`held` is the object; it is called in the event loop that `take` is called on."""
        self._held = held
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._told: list[ResultMessage] = []
        self._bytes = 0
        self._there = asyncio.Event()
        self._fetched = asyncio.Event()

    def submit(self, asked: Sequence[CallMessage]) -> None:
        """Begin calls, and cancel those that are given up."""
        for each in asked:
            if each.method is not None:
                self._calls[each.number] = asyncio.create_task(self._call(each, each.method))
            elif (call := self._calls.pop(each.number, None)) is not None:
                call.cancel()

    async def fetch(self) -> list[ResultMessage]:
        """Wait until something was told, and take all of it."""
        await self._there.wait()
        told, self._told, self._bytes = self._told, [], 0
        self._there.clear()
        self._fetched.set()
        self._fetched = asyncio.Event()
        return told

    async def _call(self, asked: CallMessage, method: str) -> None:
        try:
            called = getattr(self._held, method)(*pickle.loads(asked.arguments))
            if not asked.streams:
                self._put(ResultMessage.from_value(asked.number, "end", await called))
                return
            async with aclosing(called) as items:
                async for item in items:
                    self._put(ResultMessage.from_value(asked.number, "item", item))
                    while self._bytes > _WAITING_BYTES:
                        await self._fetched.wait()
            self._put(ResultMessage.from_value(asked.number, "end", None))
        except asyncio.CancelledError:
            if asked.number in self._calls:  # nobody has given it up
                self._put(ResultMessage.from_error(asked.number, RuntimeError(f"{method} was cancelled on its node")))
        except Exception as error:
            self._put(ResultMessage.from_error(asked.number, error))
        finally:
            self._calls.pop(asked.number, None)

    def _put(self, told: ResultMessage) -> None:
        self._told.append(told)
        self._bytes += len(told.value)
        self._there.set()
