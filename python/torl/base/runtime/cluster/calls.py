"""Calls of an object on a node by messages: `RemoteCalls` in the controller, `CallDispatcher` on the node.

The transport costs a millisecond of CPU time for each message, regardless of its size (Ray does). Calls that are made
while a message is being sent therefore share the next one.
"""

import asyncio
import contextlib
import itertools
import pickle
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from typing import Any, Literal, NamedTuple, NoReturn, TypeAlias

from torl.base.errors import ActorDiedError, TorlError

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


_Results: TypeAlias = "asyncio.Queue[ResultMessage | None]"  # None: the object was lost


class RemoteCalls:
    """The pending calls of an object. Must be made in a running event loop.

    Args:
        deliver: Passes messages to `CallDispatcher.submit` of the object. Raises if the object was lost.
        fetch: Returns the results of `CallDispatcher.fetch` of the object. Raises if the object was lost.
    """

    def __init__(
        self,
        deliver: Callable[[list[CallMessage]], Awaitable[object]],
        fetch: Callable[[], Awaitable[Sequence[ResultMessage]]],
    ) -> None:
        self._deliver = deliver
        self._fetch = fetch
        self._numbers = itertools.count()
        self._open: dict[int, _Results] = {}
        self._unsent: list[CallMessage] = []
        self._sending: asyncio.Task[None] | None = None
        self._receiving = asyncio.create_task(self._receive())
        self._failure: Exception | None = None
        self._failed = asyncio.Event()

    async def call(self, method: str, *arguments: Any) -> Any:
        """Call a coroutine method and return its result."""
        with self._request(method, arguments, streams=False) as results:
            return self._value(await results.get())[0]

    async def stream(self, method: str, *arguments: Any) -> AsyncGenerator[Any, None]:
        """Iterate over an asynchronous generator."""
        with self._request(method, arguments, streams=True) as results:
            while True:
                item, is_last = self._value(await results.get())
                if is_last:
                    return
                yield item

    async def watch(self) -> NoReturn:
        """Wait until the object is lost, and raise the error."""
        await self._failed.wait()
        self._raise_failure()

    def close(self, error: Exception) -> None:
        """Fail all calls with `error`. Safe to call repeatedly."""
        self._fail(error)
        for task in (self._receiving, self._sending):
            if task is not None:
                task.cancel()

    @contextlib.contextmanager
    def _request(self, method: str, arguments: Sequence[Any], *, streams: bool) -> Iterator[_Results]:
        if self._failure is not None:
            self._raise_failure()
        pickled = pickle.dumps(arguments)
        number = next(self._numbers)
        results: _Results = asyncio.Queue()
        self._open[number] = results
        self._send(CallMessage(number, method, pickled, streams))
        try:
            yield results
        finally:
            if self._open.pop(number, None) is not None:  # still running
                self._send(CallMessage(number, None))

    def _send(self, message: CallMessage) -> None:
        self._unsent.append(message)
        if self._sending is None and self._failure is None:
            self._sending = asyncio.create_task(self._send_all())

    async def _send_all(self) -> None:
        """Send one batch after another, so that messages arrive in order."""
        try:
            while self._unsent:
                messages, self._unsent = self._unsent, []
                await self._deliver(messages)
        except Exception as error:
            self._fail(error)
        self._sending = None

    async def _receive(self) -> None:
        try:
            while True:
                for message in await self._fetch():
                    # A cancelled call is no longer open.
                    if (results := self._open.get(message.number)) is not None:
                        results.put_nowait(message)
                        if message.kind != "item":
                            del self._open[message.number]
        except Exception as error:
            self._fail(error)

    def _value(self, message: ResultMessage | None) -> tuple[Any, bool]:
        """Return the value of a result, and whether it is the last one of its call."""
        if message is None:
            self._raise_failure()
        value = pickle.loads(message.value)
        if message.kind == "error":
            raise value
        return value, message.kind == "end"

    def _raise_failure(self) -> NoReturn:
        assert self._failure is not None
        if isinstance(self._failure, ActorDiedError):
            raise ActorDiedError(str(self._failure)) from self._failure
        raise self._failure  # a defect

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        self._failed.set()
        pending, self._open = self._open, {}
        for results in pending.values():
            results.put_nowait(None)
