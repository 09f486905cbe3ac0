"""In the controller: calls of an object on a node, by messages that many calls share.

What carries the messages takes a millisecond of CPU time for each, whatever is in it (Ray does): so what is asked while
one is under way goes with the next.
"""

import asyncio
import contextlib
import itertools
import pickle
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from typing import Any, NoReturn, TypeAlias

from torl.errors import ActorDiedError
from torl.runtime.cluster.messages import CallMessage, ResultMessage

_Answers: TypeAlias = "asyncio.Queue[ResultMessage | None]"  # None: the object is gone


class RemoteCalls:
    """The calls that are open. Needs an event loop from the start."""

    def __init__(
        self,
        deliver: Callable[[list[CallMessage]], Awaitable[object]],
        fetch: Callable[[], Awaitable[Sequence[ResultMessage]]],
    ) -> None:
        """`deliver` and `fetch` lead to `Answers.take` and `fetch` of the object; both raise when it is gone."""
        self._deliver = deliver
        self._fetch = fetch
        self._numbers = itertools.count()
        self._open: dict[int, _Answers] = {}
        self._unsent: list[CallMessage] = []
        self._sending: asyncio.Task[None] | None = None
        self._receiving = asyncio.create_task(self._receive())
        self._failure: Exception | None = None
        self._failed = asyncio.Event()

    async def call(self, method: str, *arguments: Any) -> Any:
        """What a coroutine method returns."""
        with self._asked(method, arguments, streams=False) as answers:
            return self._value(await answers.get())[0]

    async def stream(self, method: str, *arguments: Any) -> AsyncGenerator[Any, None]:
        """What an asynchronous generator gives."""
        with self._asked(method, arguments, streams=True) as answers:
            while True:
                item, is_last = self._value(await answers.get())
                if is_last:
                    return
                yield item

    async def watch(self) -> NoReturn:
        """Wait until the object is gone, and raise that."""
        await self._failed.wait()
        self._raise_failure()

    def close(self, why: Exception) -> None:
        """End all calls with `why`. Safe to call twice."""
        self._fail(why)
        for task in (self._receiving, self._sending):
            if task is not None:
                task.cancel()

    @contextlib.contextmanager
    def _asked(self, method: str, arguments: Sequence[Any], *, streams: bool) -> Iterator[_Answers]:
        if self._failure is not None:
            self._raise_failure()
        pickled = pickle.dumps(arguments)
        number = next(self._numbers)
        answers: _Answers = asyncio.Queue()
        self._open[number] = answers
        self._send(CallMessage(number, method, pickled, streams))
        try:
            yield answers
        finally:
            if self._open.pop(number, None) is not None:  # it has not ended
                self._send(CallMessage(number, None))

    def _send(self, asked: CallMessage) -> None:
        self._unsent.append(asked)
        if self._sending is None and self._failure is None:
            self._sending = asyncio.create_task(self._send_all())

    async def _send_all(self) -> None:
        """One message after the other, so that they arrive in their order."""
        try:
            while self._unsent:
                asked, self._unsent = self._unsent, []
                await self._deliver(asked)
        except Exception as error:
            self._fail(error)
        self._sending = None

    async def _receive(self) -> None:
        try:
            while True:
                for told in await self._fetch():
                    # What was given up meanwhile is no longer open.
                    if (answers := self._open.get(told.number)) is not None:
                        answers.put_nowait(told)
                        if told.kind != "item":
                            del self._open[told.number]
        except Exception as error:
            self._fail(error)

    def _value(self, told: ResultMessage | None) -> tuple[Any, bool]:
        """What was told, and whether it is the last."""
        if told is None:
            self._raise_failure()
        value = pickle.loads(told.value)
        if told.kind == "error":
            raise value
        return value, told.kind == "end"

    def _raise_failure(self) -> NoReturn:
        assert self._failure is not None
        if isinstance(self._failure, ActorDiedError):
            raise ActorDiedError(str(self._failure)) from self._failure
        raise self._failure  # a defect

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        self._failed.set()
        waiting, self._open = self._open, {}
        for answers in waiting.values():
            answers.put_nowait(None)
