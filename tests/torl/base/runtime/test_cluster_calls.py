"""Calls of an object by messages: batches, errors and values that cannot travel, cancelled calls, lost actors."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from remote_object import Something
from torl.base.errors import ActorDiedError
from torl.base.runtime.cluster.calls import CallDispatcher, CallMessage, RemoteCalls, ResultMessage


class StrangeError(Exception):
    """Can be written by pickle and not read."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(first + second)


class Other(Something):
    """Gives what cannot be sent, and much."""

    async def give_function(self) -> Callable[[], None]:
        return lambda: None

    async def be_strange(self) -> None:
        raise StrangeError(1, 2)

    async def cancel_itself(self) -> None:
        raise asyncio.CancelledError

    async def megabytes(self, count: int) -> AsyncGenerator[bytes, None]:
        for self.given in range(1, count + 1):
            yield bytes(1 << 20)


class Wire:
    """The connection of the two, with counts of its messages, and an end."""

    def __init__(self, held: object) -> None:
        self.answers = CallDispatcher(held)
        self.delivered: list[int] = []
        self.fetched: list[int] = []
        self.open = asyncio.Event()
        self.open.set()
        self.gone: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def deliver(self, asked: list[CallMessage]) -> None:
        await asyncio.sleep(0)
        self.answers.submit(asked)
        self.delivered.append(len(asked))

    async def fetch(self) -> list[ResultMessage]:
        await self.open.wait()
        fetched = asyncio.ensure_future(self.answers.fetch())
        await asyncio.wait([fetched, self.gone], return_when=asyncio.FIRST_COMPLETED)
        if self.gone.done():
            fetched.cancel()
            await self.gone
        self.fetched.append(len(await fetched))
        return fetched.result()


@asynccontextmanager
async def called(held: object) -> AsyncIterator[tuple[RemoteCalls, Wire]]:
    wire = Wire(held)
    calls = RemoteCalls(wire.deliver, wire.fetch)
    yield calls, wire
    calls.close(ActorDiedError("it was ended"))


async def test_concurrent_calls_share_messages_and_get_separate_results() -> None:
    async with called(Something()) as (calls, wire):
        assert await asyncio.gather(*(calls.call("add", n, n) for n in range(200))) == [2 * n for n in range(200)]
        assert wire.delivered == wire.fetched == [200]


async def test_unpicklable_argument_fails_only_its_own_call() -> None:
    async with called(Other()) as (calls, _):
        others = [asyncio.create_task(calls.call("add", n, 1)) for n in range(3)]
        with pytest.raises(AttributeError, match="pickle"):
            await calls.call("add", lambda: 1, 2)
        with pytest.raises(AttributeError, match="give_function"):
            await calls.call("give_function")
        with pytest.raises(RuntimeError, match="StrangeError: 3"):
            await calls.call("be_strange")
        with pytest.raises(RuntimeError, match="cancel_itself was cancelled on its node"):
            await calls.call("cancel_itself")
        assert [await each for each in others] == [1, 2, 3]


async def test_a_defect_comes_with_the_traceback_of_its_node() -> None:
    async with called(Something()) as (calls, _):
        with pytest.raises(ZeroDivisionError, match="in divide"):
            await calls.call("divide")


async def test_cancelled_call_is_cancelled_remotely_at_any_moment() -> None:
    held = Something()
    async with called(held) as (calls, _):
        for turns in range(8):  # of the event loop: before it is sent, on its way, begun
            waiting = asyncio.create_task(calls.call("wait"))
            for _ in range(turns):
                await asyncio.sleep(0)
            waiting.cancel()
            assert await calls.call("add", 1, 1) == 2
        while len(held.given_up) < held.waits:
            await asyncio.sleep(0)
        assert held.waits > 0
        async with aclosing(calls.stream("count")) as numbers:
            assert [await anext(numbers) for _ in range(3)] == [0, 1, 2]
        while held.given_up[-1] != "count":
            await asyncio.sleep(0)


async def test_finished_stream_is_not_cancelled() -> None:
    async with called(Other()) as (calls, wire):
        assert len([each async for each in calls.stream("megabytes", 3)]) == 3
        assert await calls.call("add", 1, 1) == 2
        assert wire.delivered == [1, 1]


async def test_a_stream_waits_while_much_of_it_has_not_been_fetched() -> None:
    held = Other()
    async with called(held) as (calls, wire):
        wire.open.clear()
        numbers = calls.stream("megabytes", 50)
        first = asyncio.create_task(anext(numbers))
        for _ in range(200):
            await asyncio.sleep(0)
        assert held.given == 4
        wire.open.set()
        assert len(await first) == 1 << 20
        assert len([each async for each in numbers]) == 49


async def test_end_is_reported_to_waiting_and_later_calls() -> None:
    async with called(Something()) as (calls, wire):

        async def counted() -> None:
            async for _ in calls.stream("count"):
                pass

        waiting = [asyncio.create_task(each) for each in (calls.watch(), calls.call("wait"), counted())]
        await calls.call("add", 1, 1)
        wire.gone.set_exception(ActorDiedError("something on node 1 was lost"))
        for each in waiting:
            with pytest.raises(ActorDiedError, match="something on node 1 was lost"):
                await each
        with pytest.raises(ActorDiedError, match="something on node 1 was lost"):
            await calls.call("add", 1, 1)
