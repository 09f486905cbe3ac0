"""Calls of an object on a node by messages, in the controller.

The transport costs a millisecond of CPU time for each message, regardless of its size (Ray does). Calls that are made
while a message is being sent therefore share the next one.
"""

import asyncio
import contextlib
import itertools
import pickle
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from typing import Any, NoReturn, TypeAlias

from torl.base.errors import ActorDiedError
from torl.base.runtime.cluster.dispatcher import CallMessage, ResultMessage

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
