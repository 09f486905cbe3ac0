"""The steps of a run: how far ahead of the learner they are played, and what ends them."""

import asyncio
import json
from contextlib import aclosing
from pathlib import Path

import pytest

from scripted_run import ScriptedRun
from torl.config import EvaluationConfig
from torl.errors import EngineError
from torl.rollout.evaluation import evaluate
from torl.rollout.startup import Rollouts
from torl.text.prompts import EncodedPrompts


async def settle() -> None:
    """Until all that can begin has begun: turns of the loop, which a busy machine does not make fewer."""
    for _ in range(500):
        await asyncio.sleep(0)


@pytest.mark.parametrize("staleness", [0, 1, 3])
async def test_no_step_begins_further_ahead_than_allowed(tmp_path: Path, staleness: int) -> None:
    run = ScriptedRun(tmp_path, staleness=staleness)
    async with aclosing(run.experience.steps(0)) as steps:
        for step in range(6):
            played = await anext(steps)
            assert {each.group_id.split("/")[0] for each in played.trajectories} == {str(step)}
            await settle()
            assert run.steps_begun() == set(range(min(6, step + staleness + 1)))
            run.publish(step + 1)
        with pytest.raises(StopAsyncIteration):
            await anext(steps)
    problems = [request.split("/")[1] for request in run.engine.requests]
    assert len(set(problems)) == 24  # no step took the problems of another


async def test_prefetched_steps_are_played_again_after_a_kill(tmp_path: Path) -> None:
    run = ScriptedRun(tmp_path, staleness=2)
    async with aclosing(run.experience.steps(0)) as steps:
        for step in range(3):
            await anext(steps)
            run.publish(step + 1)
        await settle()
        position = json.loads(json.dumps(run.experience.position(3)))
        ahead = [request for request in run.engine.requests if request[0] == "3"]
    assert ahead
    resumed = ScriptedRun(tmp_path, staleness=2)
    resumed.sampler.load_state_dict(position)
    resumed.version = 3
    async with aclosing(resumed.experience.steps(3)) as steps:
        await anext(steps)
        await settle()
        again = [request for request in resumed.engine.requests if request[0] == "3"]
    assert sorted(again) == sorted(ahead)


async def test_a_host_that_breaks_ahead_of_the_learner_ends_the_steps_there(tmp_path: Path) -> None:
    run = ScriptedRun(tmp_path, staleness=2)
    run.engine.fail_on = f"2/{run.order(12)[9]}/1/0"
    before = asyncio.all_tasks()
    async with aclosing(run.experience.steps(0)) as steps:
        await anext(steps)
        await anext(steps)
        with pytest.raises(ExceptionGroup) as raised:
            await anext(steps)
    assert raised.group_contains(EngineError, match="the engine died")
    assert asyncio.all_tasks() == before


async def test_closing_leaves_nothing_in_flight(tmp_path: Path) -> None:
    run = ScriptedRun(tmp_path, staleness=3)
    before = asyncio.all_tasks()
    steps = run.experience.steps(0)
    await anext(steps)
    await steps.aclose()
    assert asyncio.all_tasks() == before
    assert run.engine.open == 0


async def test_evaluation_overlaps_the_next_steps_episodes(tmp_path: Path) -> None:
    """After its end the tasks have ended as well, although no task waited for them."""
    run = ScriptedRun(tmp_path)
    problems = EncodedPrompts(tuple(run.prompts[:2]), ())
    async with aclosing(run.experience.steps(0)) as steps:
        await anext(steps)
        run.publish(1)
        assert run.steps_begun() == {0}
        await evaluate(Rollouts(run.player, run.reward), problems, EvaluationConfig(), name="set")
        ended = [request.split("/")[0] for request in run.engine.ended]
    assert [ended.count(series) for series in ("0", "1", "set-greedy")] == [8, 8, 2]
