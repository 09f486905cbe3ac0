"""Episodes when one of several engines dies, hangs or does not start; the real engines are killed in
tests/torl/components/engine/test_replicas.py."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from torl.base.errors import EngineDiedError, EngineError
from torl.base.types import SampledTurn, SamplingParameters, TurnFinish, TurnRequest
from torl.components.engine import Engine
from torl.components.engine.protocol import NO_POLICY
from torl.components.engine.replicas import Replicas
from torl.components.weights.rendezvous import Receivers, Rendezvous

RENDEZVOUS = Rendezvous("127.0.0.1", 1, 3)


class MortalEngine(Engine):
    """Ends its turns when `finish` is set, and dies, hangs or refuses on request."""

    def __init__(self, number: int, load_weights: bool = True, start_error: EngineError | None = None) -> None:
        self.number = number
        self.load_weights = load_weights
        self.version = 0 if load_weights else NO_POLICY
        self.start_error = start_error
        self.broken: EngineError | None = None
        self.refusal: EngineError | None = None
        self.happened = asyncio.Event()
        self.finish = asyncio.Event()
        self.asked: list[Any] = []
        self.may_start = asyncio.Event()
        self.may_start.set()

    @property
    def policy_version(self) -> int:
        return self.version

    async def start(self) -> None:
        await self.may_start.wait()
        if self.start_error is not None:
            raise self.start_error

    async def sample(self, request: TurnRequest, on_block: Callable[[str], None] | None = None) -> SampledTurn:
        self.asked.append(list(request.prefix))
        if self.refusal is not None:
            raise self.refusal
        waits = [asyncio.ensure_future(event.wait()) for event in (self.happened, self.finish)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for each in waits:
            each.cancel()
        self.check()
        return SampledTurn((self.number,), (-1.0,), ((self.version, 0),), TurnFinish.STOP, 0)

    async def select_receivers(self) -> Receivers:
        return Receivers(2, changed=True)

    async def receive_weights(self, rendezvous: Rendezvous, policy_version: int, *, first: int = 0) -> None:
        self.asked.append(("receive", policy_version, first))
        self.version = policy_version

    async def sleep(self) -> None:
        self.asked.append("sleep")

    def check(self) -> None:
        if self.broken is not None:
            raise self.broken

    def fail(self, error: EngineError) -> None:
        self.broken = error
        self.happened.set()


class House:
    """Engines with a router, and every engine that was made."""

    def __init__(
        self, count: int, *, restarts: int = 2, shares_devices: bool = False, load_weights: bool = True
    ) -> None:
        self.made: list[MortalEngine] = []
        self.prepare: Callable[[MortalEngine], object] = lambda _: None
        self.engine = Replicas(
            self._make,
            count,
            max_restarts=restarts,
            policy_version=0,
            shares_devices=shares_devices,
            load_weights=load_weights,
        )

    def _make(self, number: int, load_weights: bool) -> MortalEngine:
        self.made.append(MortalEngine(number, load_weights))
        self.prepare(self.made[-1])
        return self.made[-1]

    def turn(self, episode: int, group: str = "", replica: int | None = None) -> "asyncio.Task[SampledTurn]":
        request = TurnRequest(
            str(episode), [episode], SamplingParameters(5), episode=episode, group=group, replica=replica
        )
        return asyncio.create_task(self.engine.sample(request))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.01)


async def test_a_turn_that_an_engine_dies_with_is_sampled_by_another() -> None:
    house = House(2)
    await house.engine.start()
    turns = [house.turn(episode) for episode in range(4)]
    await house.until(lambda: [len(each.asked) for each in house.made] == [2, 2])
    house.made[0].fail(EngineDiedError("killed"))
    await house.until(lambda: len(house.made[1].asked) == 4)
    house.made[1].finish.set()
    assert [(await each).token_ids for each in turns] == [(1,)] * 4
    await house.until(lambda: len(house.made) == 3 and house.engine.engines[0] is house.made[2])
    await house.engine.close()


async def test_turn_for_one_engine_is_sampled_there_while_it_lives() -> None:
    house = House(3)
    await house.engine.start()
    house.prepare = lambda engine: engine.may_start.clear()
    turns = [house.turn(episode, replica=2) for episode in range(4)]
    await house.until(lambda: [len(each.asked) for each in house.made] == [0, 0, 4])
    house.made[2].fail(EngineDiedError("killed"))
    await house.until(lambda: [len(each.asked) for each in house.made[:2]] == [2, 2])
    for engine in house.made:
        engine.finish.set()
    assert sorted(turn.token_ids for turn in await asyncio.gather(*turns)) == [(0,), (0,), (1,), (1,)]
    await house.engine.close()


async def test_the_only_engine_is_started_again_and_turns_wait_for_it(caplog: pytest.LogCaptureFixture) -> None:
    house = House(1)
    await house.engine.start()
    turn = house.turn(0)
    await house.until(lambda: house.made[0].asked != [])
    with caplog.at_level(logging.WARNING):
        house.made[0].fail(EngineDiedError("killed\nits log"))
        await house.until(lambda: len(house.made) == 2 and house.made[1].asked == [[0]])
    assert "restarting engine 0 (1 of 2): killed" in caplog.text
    house.made[1].finish.set()
    assert (await turn).token_ids == (0,)
    await house.engine.close()


async def test_one_that_dies_too_often_ends_the_run() -> None:
    house = House(2, restarts=1)
    await house.engine.start()
    turn = house.turn(1)
    watch = asyncio.create_task(house.engine.watch())
    house.made[0].fail(EngineDiedError("killed\nits log"))
    await house.until(lambda: len(house.made) == 3 and house.engine.engines[0] is house.made[2])
    house.made[2].fail(EngineDiedError("killed again\nits log"))
    with pytest.raises(EngineError, match=r"killed again \(after 1 restarts \(cluster.max_restarts\)\)\nits log"):
        await asyncio.wait_for(watch, 60)
    with pytest.raises(EngineError, match="killed again"):
        house.engine.check()
    turn.cancel()
    await house.engine.close()


async def test_one_that_does_not_start_again_is_tried_as_often_as_allowed() -> None:
    house = House(1, restarts=3)
    await house.engine.start()
    house.prepare = lambda engine: setattr(engine, "start_error", EngineError("no memory"))
    watch = asyncio.create_task(house.engine.watch())
    turn = house.turn(0)
    house.made[0].fail(EngineDiedError("killed"))
    with pytest.raises(EngineError, match=r"no memory \(after 3 restarts"):
        await asyncio.wait_for(watch, 60)
    with pytest.raises(EngineError, match="no memory"):  # nothing waits indefinitely
        await asyncio.wait_for(turn, 60)
    assert len(house.made) == 4
    await house.engine.close()


async def test_a_request_that_is_refused_is_not_tried_elsewhere() -> None:
    house = House(2)
    await house.engine.start()
    for each in house.made:
        each.refusal = EngineError("refused: too long")
    with pytest.raises(EngineError, match="refused"):
        await house.turn(0)
    assert sum(len(each.asked) for each in house.made) == 1
    house.engine.check()
    await house.engine.close()


async def test_one_that_hangs_ends_the_run() -> None:
    """Its device will hang again, and needs a look by the user."""
    house = House(2)
    await house.engine.start()
    house.made[1].fail(EngineError("the engine hung"))
    with pytest.raises(EngineError, match="hung"):
        await asyncio.wait_for(house.engine.watch(), 60)
    assert len(house.made) == 2
    await house.engine.close()


async def test_a_replacement_samples_when_it_has_the_weights_of_the_others() -> None:
    house = House(2)
    await house.engine.start()
    assert (await house.engine.select_receivers()).count == 4
    await house.engine.receive_weights(RENDEZVOUS, 1)
    assert [each.asked for each in house.made] == [[("receive", 1, 0)], [("receive", 1, 2)]]
    house.prepare = lambda engine: engine.may_start.clear()
    house.made[0].fail(EngineDiedError("killed"))
    await house.until(lambda: len(house.made) == 3)
    # The publication that comes while it starts does without it.
    assert not house.engine.needs_weights
    assert (await house.engine.select_receivers()).count == 2
    house.made[2].may_start.set()
    await house.until(lambda: house.engine.needs_weights)
    await house.engine.receive_weights(RENDEZVOUS, 2)
    assert house.made[1].asked[-1] == ("receive", 2, 0)
    assert house.made[2].asked == []
    assert house.engine.needs_weights
    assert house.engine.is_serving
    turns = [house.turn(episode) for episode in range(6)]
    await house.until(lambda: len(house.made[1].asked) == 8)
    assert (await house.engine.select_receivers()).count == 4
    await house.engine.receive_weights(RENDEZVOUS, 2)
    assert not house.engine.needs_weights
    house.turn(6)
    await house.until(lambda: house.made[2].asked[1:] == [[6]])
    for turn in turns:
        turn.cancel()
    await house.engine.close()


async def test_the_models_weights_are_read_only_by_engines_that_sample_with_them() -> None:
    house = House(1)
    await house.engine.start()
    house.made[0].fail(EngineDiedError("killed before any weights came"))
    await house.until(lambda: house.engine.is_serving and len(house.made) == 2)
    await house.engine.select_receivers()
    await house.engine.receive_weights(RENDEZVOUS, 1)
    house.made[1].fail(EngineDiedError("killed afterwards"))
    await house.until(lambda: house.engine.needs_weights)
    assert [each.load_weights for each in house.made] == [True, True, False]
    await house.engine.close()


async def test_engines_that_begin_without_weights_wait_for_them() -> None:
    house = House(2, load_weights=False)
    await house.engine.start()
    assert [each.load_weights for each in house.made] == [False, False]
    assert house.engine.policy_version == NO_POLICY
    assert house.engine.needs_weights
    assert not house.engine.is_serving
    turn = house.turn(0)
    await house.engine.select_receivers()
    await house.engine.receive_weights(RENDEZVOUS, 5)
    house.made[0].finish.set()
    assert (await turn).policy_versions == ((5, 0),)
    assert not house.engine.needs_weights
    await house.engine.close()


async def test_no_engine_starts_on_devices_that_the_learner_has() -> None:
    house = House(2, shares_devices=True)
    await house.engine.start()
    house.prepare = lambda engine: engine.may_start.clear()
    house.made[0].fail(EngineDiedError("killed"))
    await house.until(lambda: len(house.made) == 3)
    sleeping = asyncio.create_task(house.engine.sleep())
    await asyncio.sleep(0.1)
    assert not sleeping.done()  # it is on its way, and takes memory
    house.made[2].may_start.set()
    await sleeping
    assert house.made[2].asked == ["sleep"]
    house.made[1].fail(EngineDiedError("killed"))
    with pytest.raises(EngineError, match="while the learner had its devices"):
        await asyncio.wait_for(house.engine.watch(), 60)
    assert len(house.made) == 3
    await house.engine.close()


async def test_engines_that_do_not_all_start_leave_nothing_and_say_why() -> None:
    house = House(3)
    house.made[1].start_error = EngineError("no such device")
    with pytest.raises(EngineError, match="no such device"):
        await house.engine.start()
    with pytest.raises(EngineError, match="start it first"):
        await house.turn(0)


async def test_time_without_requests_is_counted() -> None:
    house = House(1)
    assert house.engine.idle_seconds == 0.0
    await house.engine.start()
    await house.until(lambda: house.engine.idle_seconds > 0.0)
    turn = house.turn(0)
    await house.until(lambda: house.made[0].asked != [])
    idle = house.engine.idle_seconds
    await asyncio.sleep(0.02)
    assert house.engine.idle_seconds == idle
    house.made[0].finish.set()
    await turn
    await house.until(lambda: house.engine.idle_seconds > idle)
    await house.engine.close()
