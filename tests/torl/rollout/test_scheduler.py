"""Many episodes at once: refill, groups, errors, cancellation."""

import asyncio
from contextlib import aclosing
from dataclasses import replace
from itertools import pairwise

import pytest

from builders import asked, play_all, player, scored
from scripted_engine import ENCODER, ScriptedEngine, ScriptedInterpreter
from torl.base.errors import EngineError, SandboxError
from torl.base.types import Trajectory
from torl.rollout.scheduler import play_groups
from torl.rollout.slots import EpisodeSlots
from torl.training.samples import training_samples

CALL = ENCODER.encode("\n```python\nprint(1)\n```\n```output")
PLAIN = ENCODER.encode("The answer is \\boxed{1}.")
PROMPTS = [asked(f"p{index}", token_ids=(5, 6, 7)) for index in range(6)]


async def settle() -> None:
    """Wait until no task can continue alone: turns of the loop, which a busy machine does not make fewer."""
    for _ in range(2000):
        await asyncio.sleep(0)


def calls_first(request_id: str) -> list[int]:
    return CALL if request_id.endswith("/0") else PLAIN


async def test_every_episode_once_and_groups_whole() -> None:
    # Problems differ in length, so that they end out of order.
    engine = ScriptedEngine(lambda request: PLAIN * (7 - int(request.split("/")[1][1:])))
    episodes: list[None] = []
    groups = play_groups(
        player(engine, ScriptedInterpreter(), limit=321),
        PROMPTS,
        batch_id=3,
        samples_per_prompt=4,
        on_episode=lambda: episodes.append(None),
    )
    async with aclosing(groups):
        finished = [group async for group in groups]
    assert sorted(group.trajectories[0].group_id for group in finished) == [f"3/p{index}" for index in range(6)]
    assert [group.trajectories[0].group_id for group in finished] != [f"3/p{index}" for index in range(6)]
    for group in finished:
        assert group.prompt in PROMPTS
        assert group.max_response_tokens == 321
        assert {trajectory.prompt for trajectory in group.trajectories} == {group.prompt}
        assert [trajectory.sample_index for trajectory in group.trajectories] == [0, 1, 2, 3]
        assert len({trajectory.group_id for trajectory in group.trajectories}) == 1
    assert len(episodes) == 24


async def test_training_mixes_reward_goals_and_evaluation_uses_high() -> None:
    """The run's seed chooses the goal of each episode (RC-GRPO); the loss sees the prompt that was asked."""
    low = [replace(prompt, token_ids=(5, 6, 8), variant="low", weight=0.75) for prompt in PROMPTS]
    mixed = [
        replace(prompt, variant="high", weight=0.25, variants=(other,))
        for prompt, other in zip(PROMPTS, low, strict=True)
    ]

    async def played(series: int | str) -> list[Trajectory]:
        groups = await play_all(player(ScriptedEngine(lambda _: PLAIN), ScriptedInterpreter()), mixed, series, 16)
        groups.sort(key=lambda group: group.prompt.problem.id)
        return [each for group in groups for each in group.trajectories]

    trained, evaluated = await played(0), await played("heldout")
    assert all(each.prompt.variant == "high" for each in evaluated)
    high = [each.prompt.variant == "high" for each in trained]
    assert 10 < sum(map(bool, high)) < 40  # of 96 a quarter, by one seed
    assert high[:16] != high[16:32]
    assert high == [each.prompt.variant == "high" for each in await played(0)]
    for each, sample in zip(trained, training_samples([scored(each) for each in trained]), strict=True):
        assert tuple(sample.token_ids[:3]) == each.prompt.token_ids


async def test_a_group_is_in_the_order_of_its_samples_whichever_ended_first() -> None:
    engine = ScriptedEngine(lambda request: PLAIN * (5 - int(request.split("/")[2])))
    (group,) = await play_all(player(engine, ScriptedInterpreter()), PROMPTS[:1], 0, samples=4)
    assert engine.ended == [f"0/p0/{sample}/0" for sample in (3, 2, 1, 0)]
    assert [trajectory.sample_index for trajectory in group.trajectories] == [0, 1, 2, 3]


async def test_never_more_than_allowed_in_flight() -> None:
    engine = ScriptedEngine(lambda _: PLAIN)
    assert len(await play_all(player(engine, ScriptedInterpreter(), in_flight=5), PROMPTS, 0, samples=4)) == 6
    assert engine.most_open == 5


async def test_who_waits_for_the_tool_makes_room() -> None:
    engine = ScriptedEngine(calls_first)
    interpreter = ScriptedInterpreter(delay=3600)
    groups = play_groups(player(engine, interpreter, in_flight=3), PROMPTS, batch_id=0, samples_per_prompt=4)
    first = asyncio.ensure_future(anext(groups))
    await settle()
    assert interpreter.running == len(engine.requests) == 12  # four times as many as may be sampled, and no more
    assert engine.most_open == 3
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await groups.aclose()


async def test_a_second_series_starts_when_the_first_leaves_room() -> None:
    engine = ScriptedEngine(lambda request: PLAIN * 50 if "p0" in request else PLAIN)
    playing = player(engine, ScriptedInterpreter(), in_flight=4)
    first, second = await asyncio.gather(*(play_all(playing, PROMPTS, series, samples=1) for series in range(2)))
    assert len(first) == len(second) == 6
    started = list(engine.requests)
    assert [request.split("/")[0] for request in started] == ["0"] * 6 + ["1"] * 6
    assert playing.slots.sampling == 0


async def test_episodes_go_on_while_the_consumer_is_busy() -> None:
    engine = ScriptedEngine(calls_first)
    groups = play_groups(player(engine, ScriptedInterpreter(), in_flight=2), PROMPTS, batch_id=0, samples_per_prompt=2)
    async with aclosing(groups):
        await anext(groups)
        await settle()
        assert len(engine.requests) == 24  # all of them have been played
        assert engine.open == 0


async def test_slow_call_delays_no_other_episode() -> None:
    engine = ScriptedEngine(lambda request: CALL if request == "0/p0/0/0" else PLAIN)
    interpreter = ScriptedInterpreter(delay=0.5)
    groups = await play_all(player(engine, interpreter), PROMPTS, 0, samples=1)
    assert groups[-1].trajectories[0].group_id == "0/p0"


@pytest.mark.parametrize("where", ["engine", "sandbox"])
async def test_the_first_host_error_cancels_the_rest(where: str) -> None:
    engine = ScriptedEngine(calls_first, fail_on="0/p2/1/1" if where == "engine" else None)
    interpreter = ScriptedInterpreter(delay=0.01, fail_with=SandboxError("dead") if where == "sandbox" else None)
    before = asyncio.all_tasks()
    with pytest.raises(EngineError if where == "engine" else SandboxError):
        await play_all(player(engine, interpreter), PROMPTS, 0, samples=3)
    assert asyncio.all_tasks() == before
    assert engine.open == interpreter.running == 0


async def test_closing_early_leaves_nothing_running() -> None:
    engine = ScriptedEngine(calls_first)

    def first(code: str) -> str:
        interpreter.delay = 3600  # of all runs that begin after the first, which ends before another is sampled
        return f"{code}\n"

    interpreter = ScriptedInterpreter(first)
    groups = play_groups(player(engine, interpreter, in_flight=1), PROMPTS, batch_id=0, samples_per_prompt=1)
    before = asyncio.all_tasks()
    await anext(groups)
    await settle()
    assert interpreter.running > 0
    await groups.aclose()
    assert asyncio.all_tasks() == before
    assert engine.open == interpreter.running == 0


async def test_cancelling_the_consumer_leaves_nothing_running() -> None:
    engine = ScriptedEngine(calls_first)
    interpreter = ScriptedInterpreter(delay=3600)
    before = asyncio.all_tasks()
    task = asyncio.ensure_future(play_all(player(engine, interpreter), PROMPTS, 0, samples=2))
    await settle()
    assert interpreter.running == 12
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == before
    assert engine.open == interpreter.running == 0


async def test_numbers_that_make_no_sense() -> None:
    engine = ScriptedEngine(calls_first)
    with pytest.raises(ValueError, match="at least 1"):
        await anext(play_groups(player(engine, ScriptedInterpreter()), PROMPTS, batch_id=0, samples_per_prompt=0))


async def test_a_thousand_episodes_do_not_all_begin_in_one_turn_of_the_event_loop() -> None:
    slots = EpisodeSlots(1000)
    started = 0

    def begin() -> bool:
        nonlocal started
        started += 1
        slots.begin()
        return True

    slots.add(begin)
    counts = [started]
    while started < 1000:
        slots.end()  # an episode that ends in between does not make it more at once
        slots.begin()
        await asyncio.sleep(0)
        counts.append(started)
    assert max(after - before for before, after in pairwise([0, *counts])) <= 32
    await settle()
    assert started == slots.sampling == 1000
