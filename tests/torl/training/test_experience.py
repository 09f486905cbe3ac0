"""The steps of a run: how far ahead of the learner they are played, and what ends them."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from scripted_run import ScriptedRun
from torl.base.errors import EngineError
from torl.components.data import CurriculumSampler, PromptSampler
from torl.components.text.prompts import EncodedPrompts
from torl.rollout.evaluation import evaluate
from torl.rollout.startup import Rollouts
from torl.run.config import EvaluationConfig
from torl.training.experience import Experience


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


async def test_epoch_is_that_of_the_step_although_later_ones_are_drawn(tmp_path: Path) -> None:
    run = ScriptedRun(tmp_path, staleness=1, problems=8)  # four a step
    async with aclosing(run.experience.steps(0)) as steps:
        for step in range(4):
            played = await anext(steps)
            run.publish(step + 1)
            await settle()
            assert played.counts["data/epoch"] == step // 2


async def problems_of(run: ScriptedRun, first: int, stop: int) -> list[list[str]]:
    """The problems of these steps, each played before the next is asked for."""
    problems = []
    async with aclosing(run.experience.steps(first)) as steps:
        for step in range(first, stop):
            played = await anext(steps)
            problems.append([group.prompt.problem.id for group in played.groups])
            run.publish(step + 1)
            await settle()
    return problems


def with_sampler(run: ScriptedRun, sampler: PromptSampler, position: Mapping[str, Any] | None = None) -> ScriptedRun:
    """The run with another sampler, resumed at the position of a checkpoint, if any."""
    ahead = []
    if position is not None:
        state = json.loads(json.dumps(position))
        sampler.load_state_dict(state["sampler"])
        prompts = {prompt.problem.id: prompt for prompt in run.prompts}
        ahead = [prompts[name] for name in state["ahead"]]
    run.sampler = sampler
    run.experience = Experience(run.config, sampler, run.player, run.reward, run.step_player.console, ahead)
    return run


def resumed(run: ScriptedRun, again: ScriptedRun, step: int) -> ScriptedRun:
    """`again`, resumed where `run` stopped."""
    again.version = step
    return with_sampler(again, PromptSampler(again.prompts, 0), run.experience.position)


async def test_prefetched_steps_are_played_again_after_a_kill(tmp_path: Path) -> None:
    whole, run = (ScriptedRun(tmp_path, staleness=2, problems=21) for _ in range(2))  # its epoch ends in a step
    problems = await problems_of(whole, 0, 6)
    assert await problems_of(run, 0, 3) == problems[:3]
    ahead = [request for request in run.engine.requests if request[0] == "3"]
    again = resumed(run, ScriptedRun(tmp_path, staleness=2, problems=21), 3)
    assert await problems_of(again, 3, 6) == problems[3:]
    assert sorted(request for request in again.engine.requests if request[0] == "3") == sorted(ahead) != []


async def test_a_synchronous_checkpoint_is_the_sampler_between_two_steps(tmp_path: Path) -> None:
    """The next step is played while the checkpoint is written."""
    settings = {"selection": {"groups": {"zero_variance": {}}, "max_rounds": 10}}
    run = ScriptedRun(tmp_path, lambda number: number % 2, problems=200, **settings)
    sampler = CurriculumSampler(run.prompts, 0, cooldown=(1, 1))
    with_sampler(run, sampler)
    async with aclosing(run.experience.steps(0)) as steps:
        for step in range(3):
            await anext(steps)
            between = sampler.state_dict()
            run.publish(step + 1)
            await settle()
            assert run.experience.position == {"sampler": between, "ahead": []}
            assert sampler.state_dict() != between


async def test_a_checkpoint_holds_the_accuracies_of_the_steps_before_it_and_no_others(tmp_path: Path) -> None:
    def curriculum(position: Mapping[str, Any] | None = None) -> ScriptedRun:
        run = ScriptedRun(tmp_path, lambda number: False, staleness=1, problems=20)
        run.version = 0 if position is None else 3
        return with_sampler(run, CurriculumSampler(run.prompts, 0, cooldown=(1, 1)), position)

    whole, run = curriculum(), curriculum()
    problems = await problems_of(whole, 0, 6)
    assert await problems_of(run, 0, 3) == problems[:3]
    position = run.experience.position
    assert set(position["sampler"]["curriculum"]["cooldowns"]) == set().union(*problems[:3])
    assert position["ahead"] == problems[3]
    again = curriculum(position)
    assert await problems_of(again, 3, 6) == problems[3:]
    assert again.experience.position == whole.experience.position


@pytest.mark.parametrize("stop", range(1, 6))
async def test_a_resumed_run_neither_repeats_nor_misses_a_problem_of_the_epoch(stop: int, tmp_path: Path) -> None:
    """Steps with later rounds, which they draw while the steps after them are played."""

    def dynamic() -> ScriptedRun:
        selection = {"groups": {"zero_variance": {}}, "max_rounds": 10}
        return ScriptedRun(tmp_path, lambda number: number % 3 == 0, staleness=2, problems=200, selection=selection)

    run = dynamic()
    before = await problems_of(run, 0, stop)
    again = resumed(run, dynamic(), stop)
    played = [name for names in (*before, *await problems_of(again, stop, 6)) for name in names]
    assert any(len(names) > 4 for names in before)
    assert sorted(played) == sorted(run.order(len(played)))


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
