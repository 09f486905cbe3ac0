"""Calls of an object on a node by messages, on the node. Many calls share one message, in both directions."""

import asyncio
import pickle
import traceback
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any, Literal, NamedTuple

from torl.base.errors import TorlError

_MAX_WAITING_BYTES = 4 << 20  # unfetched results above which streams pause


class CallMessage(NamedTuple):
    """A message to the object: start a call, or cancel it.

    Attributes:
        number: Number of the call.
        method: Name of the method. None cancels the call.
        arguments: Pickled arguments.
        streams: Whether the method is an asynchronous generator.
    """

    number: int
    method: str | None
    arguments: bytes = b""
    streams: bool = False


class ResultMessage(NamedTuple):
    """A message from the object: a result of a call. A malformed message does not affect others.

    Attributes:
        number: Number of the call.
        kind: "item" for an item of a stream, "end" for the return value or the end of a stream, or "error".
        value: Pickled value or exception.
    """

    number: int
    kind: Literal["item", "end", "error"]
    value: bytes

    @classmethod
    def from_value(cls, number: int, kind: Literal["item", "end"], value: Any) -> "ResultMessage":
        """Pickle a value. A value that cannot be pickled becomes an error."""
        try:
            return cls(number, kind, pickle.dumps(value))
        except Exception as error:
            return cls.from_error(number, error)

    @classmethod
    def from_error(cls, number: int, error: Exception) -> "ResultMessage":
        """Pickle an exception. A defect carries its traceback: as a note, or as the text of a RuntimeError."""
        if not isinstance(error, TorlError):
            error.add_note("".join(traceback.format_exception(error)))
        try:
            value = pickle.dumps(error)
            pickle.loads(value)  # fails if the class takes other arguments than its `args`
        except Exception:
            value = pickle.dumps(RuntimeError("".join(traceback.format_exception(error))))
        return cls(number, "error", value)


class CallDispatcher:
    """The calls of an object, and their results until they are fetched.

    Args:
        target: Object to call, in the event loop of `submit`.
    """

    def __init__(self, target: Any) -> None:
        self._target = target
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._results: list[ResultMessage] = []
        self._bytes = 0
        self._available = asyncio.Event()
        self._fetched = asyncio.Event()

    def submit(self, messages: Sequence[CallMessage]) -> None:
        """Start calls, and cancel calls."""
        for message in messages:
            if message.method is not None:
                self._calls[message.number] = asyncio.create_task(self._call(message, message.method))
            elif (call := self._calls.pop(message.number, None)) is not None:
                call.cancel()

    async def fetch(self) -> list[ResultMessage]:
        """Wait for results and return all of them."""
        await self._available.wait()
        results, self._results, self._bytes = self._results, [], 0
        self._available.clear()
        self._fetched.set()
        self._fetched = asyncio.Event()
        return results

    async def _call(self, message: CallMessage, method: str) -> None:
        try:
            called = getattr(self._target, method)(*pickle.loads(message.arguments))
            if not message.streams:
                self._put(ResultMessage.from_value(message.number, "end", await called))
                return
            async with aclosing(called) as items:
                async for item in items:
                    self._put(ResultMessage.from_value(message.number, "item", item))
                    while self._bytes > _MAX_WAITING_BYTES:
                        await self._fetched.wait()
            self._put(ResultMessage.from_value(message.number, "end", None))
        except asyncio.CancelledError:
            if message.number in self._calls:  # the controller did not cancel it
                error = RuntimeError(f"{method} was cancelled on its node")
                self._put(ResultMessage.from_error(message.number, error))
        except Exception as error:
            self._put(ResultMessage.from_error(message.number, error))
        finally:
            self._calls.pop(message.number, None)

    def _put(self, result: ResultMessage) -> None:
        self._results.append(result)
        self._bytes += len(result.value)
        self._available.set()
