"""Episodes that failed because of a tool: left out of their groups and counted; too many of them stop the run."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders import play_all, printed
from scripted_engine import ENCODER
from scripted_run import ScriptedRun, ScriptedTool
from torl.base.errors import ToolUnavailableError
from torl.base.runtime.processes.supervision import first_error
from torl.base.types import Outcome, ScoredGroup
from torl.components.text.prompts import EncodedPrompts
from torl.rollout.evaluation import evaluate
from torl.rollout.group_file import GroupFile, play_to_file
from torl.rollout.startup import Rollouts
from torl.training.experience import Experience
from torl.training.samples import training_samples, with_advantages
from torl_lab.audit.naive.estimators import BatchRewards, naive_advantages


class Line(ScriptedTool):
    """A tool that is away for the episodes named "problem/sample"."""

    def __init__(self, away: set[str]) -> None:
        super().__init__()
        self.away = away

    async def call(self, arguments: Mapping[str, Any]) -> Outcome:
        episode = arguments["code"].strip()
        if episode in self.away:
            raise ToolUnavailableError(f"{episode} found no server")
        return printed()


def run_with(directory: Path, away: set[str], **settings: Mapping[str, Any]) -> ScriptedRun:
    """Four problems in groups of four. Each episode calls the tool once; the odd samples are right."""
    rollout = {"samples_per_prompt": 4, "max_response_tokens": 200, "speculative_execution": False}
    merged = settings | {"rollout": {**rollout, **settings.get("rollout", {})}}
    run = ScriptedRun(directory, problems=8, **merged)
    run.player.tools = {"python": Line(away)}

    def script(request: str) -> list[int]:
        found = re.fullmatch(r"[\w-]+/(p\d+/(\d+))/(\d+)", request)
        assert found is not None
        name, sample, turn = found[1], int(found[2]), int(found[3])
        text = "\\boxed{1}" if sample % 2 else "\\boxed{2}" + " and so on" * sample
        return ENCODER.encode(text if turn else f"\n```python\n{name}\n```\n```output")

    run.engine.script = script
    return run


def samples(groups: tuple[ScoredGroup, ...]) -> dict[str, list[int]]:
    return {group.prompt.problem.id: [each.trajectory.sample_index for each in group.members] for group in groups}


async def test_failed_episode_is_dropped_from_its_group_and_counted(tmp_path: Path) -> None:
    first, second, *others = ScriptedRun(tmp_path, problems=8).order(4)
    run = run_with(tmp_path, {f"{first}/0", f"{first}/3", f"{second}/1"}, rollout={"max_failed_fraction": 0.2})
    played = await run.step_player.play(0)
    whole = {name: [0, 1, 2, 3] for name in others}
    assert samples(played.groups) == samples(played.batch) == {first: [1, 2], second: [0, 2, 3], **whole}
    assert played.counts["rollout/failed_episodes"] == 3
    assert played.counts["selection/failed_groups"] == 0
    assert re.search(r"step 1: dropped 3 failed episodes; last error: p\d/\d found no server", run.said.getvalue())


async def test_a_group_with_nothing_left_to_compare_is_not_learned_from(tmp_path: Path) -> None:
    first, second, *others = ScriptedRun(tmp_path, problems=8).order(4)
    away = {f"{first}/{sample}" for sample in range(4)} | {f"{second}/{sample}" for sample in range(3)}
    played = await run_with(tmp_path, away, rollout={"max_failed_fraction": 0.5}).step_player.play(0)
    whole = {name: [0, 1, 2, 3] for name in others}
    assert samples(played.groups) == {second: [3], **whole}  # it is in the records
    assert samples(played.batch) == whole
    assert played.counts["rollout/failed_episodes"] == 7
    assert played.counts["selection/failed_groups"] == 1


async def test_dynamic_sampling_replaces_failed_groups(tmp_path: Path) -> None:
    failed = ScriptedRun(tmp_path, problems=8).order(4)[0]
    selection = {"groups": {"zero_variance": {}}, "max_rounds": 10}
    away = {f"{failed}/{sample}" for sample in range(4)}
    run = run_with(tmp_path, away, selection=selection, rollout={"max_failed_fraction": 0.25})
    played = await run.step_player.play(0)
    assert len(played.batch) == 4
    assert failed not in samples(played.batch)
    assert played.counts["selection/rounds"] == 2


@pytest.mark.parametrize(
    ("prompts", "failures", "fraction", "stops"),
    [
        (4, 4, 0.25, False),
        (4, 4, 0.24, True),
        (4, 1, 0.0, True),
        (4, 3, 0.1, False),  # three of any number
        (2, 1, 0.1, False),
        (2, 4, 0.1, True),
        (1, 2, 0.1, False),
        (1, 3, 0.1, True),  # but at most half
    ],
)
async def test_above_a_fraction_or_a_few_the_run_stops(
    tmp_path: Path, prompts: int, failures: int, fraction: float, stops: bool
) -> None:
    name = ScriptedRun(tmp_path, problems=8).order(4)[0]
    away = {f"{name}/{sample}" for sample in range(failures)}
    run = run_with(tmp_path, away, rollout={"max_failed_fraction": fraction, "prompts_per_step": prompts})
    if not stops:
        assert (await run.step_player.play(0)).counts["rollout/failed_episodes"] == failures
        return
    limit = r"\(rollout.max_failed_fraction = 0.*\)"
    many = rf"{failures} of {4 * prompts} episodes failed {limit}; last error: p\d/\d found no server"
    with pytest.raises(ExceptionGroup) as raised:
        await run.step_player.play(0)
    assert re.fullmatch(many, str(first_error(raised.value)))
    assert run.engine.open == 0


async def test_prefetched_steps_continue_without_failed_episodes(tmp_path: Path) -> None:
    names = ScriptedRun(tmp_path, problems=8).order(8)
    run = run_with(tmp_path, {f"{name}/2" for name in names[::4]}, rollout={"max_staleness": 1, "prompts_per_step": 4})
    run.experience = Experience(run.config, run.sampler, run.player, run.reward, run.step_player.console)
    steps = run.experience.steps(0)
    failed = [(await anext(steps)).counts["rollout/failed_episodes"] for _ in range(2)]
    await steps.aclose()
    assert failed == [1, 1]


@pytest.mark.parametrize(
    "estimator", ["grpo", "dr_grpo", "rloo", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "ppo"]
)
async def test_advantages_are_those_of_the_smaller_groups(tmp_path: Path, estimator: str) -> None:
    first, second, *_ = ScriptedRun(tmp_path, problems=8).order(4)
    away = {f"{first}/1", f"{second}/0", f"{second}/2"}
    run = run_with(tmp_path, away, algorithm={"estimator": estimator}, rollout={"max_failed_fraction": 0.2})
    played = await run.step_player.play(0)
    members = [member for group in played.batch for member in group.members]
    found = training_samples(members)
    values = [np.linspace(-1, 1, len(sample), dtype=np.float32) for sample in found]
    found = [replace(sample, values=each) for sample, each in zip(found, values, strict=True)]
    found = with_advantages(found, played.batch, run.config.algorithm)
    payment = BatchRewards(
        rewards=[member.grade.reward for member in members],
        groups=[member.trajectory.group_id for member in members],
        token_rewards=[[0.0] * int(sample.loss_mask.sum()) for sample in found],
        values=[each[sample.loss_mask].tolist() for each, sample in zip(values, found, strict=True)],
    )
    slow = naive_advantages(run.config.algorithm, payment)
    assert slow is not None
    assert [len(group.members) for group in played.batch] == [3, 2, 4, 4]
    for sample, expected in zip(found, slow, strict=True):
        assert sample.advantages is not None
        assert sample.advantages[sample.loss_mask].tolist() == pytest.approx(expected, abs=2e-5)


async def test_an_evaluation_leaves_them_out_and_says_how_many(tmp_path: Path) -> None:
    run = run_with(tmp_path, {"p0/0"}, evaluation={"greedy": False, "samples_per_problem": 4})
    problems = EncodedPrompts(tuple(run.prompts[:4]), ())
    result = await evaluate(Rollouts(run.player, run.reward), problems, run.config.evaluation, name="set")
    assert result.metrics["rollout/failed_episodes"] == 1
    assert result.metrics["reward/accuracy"] == pytest.approx(8 / 15)


async def test_a_file_of_groups_holds_whole_ones_only_and_the_rest_is_played_again(tmp_path: Path) -> None:
    run = run_with(tmp_path, {"p1/0"})
    output = GroupFile(tmp_path / "groups.jsonl")
    play = {"name": "episodes", "batch_id": 0, "samples": 4}
    with pytest.raises(ToolUnavailableError, match="1 episodes failed; run the command again to play their problems"):
        await play_to_file(Rollouts(run.player, run.reward), run.prompts[:4], output, run.step_player.console, **play)
    assert {group.prompt.problem.id for group in output.read()} == {"p0", "p2", "p3"} == set(output.drop_incomplete(4))
    run.player.tools = {"python": Line(set())}
    run.engine.requests.clear()
    await play_to_file(Rollouts(run.player, run.reward), run.prompts[1:2], output, run.step_player.console, **play)
    assert len(output.read()) == 4


async def test_slots_of_failed_episodes_are_released(tmp_path: Path) -> None:
    run = run_with(tmp_path, {"p0/0"})
    assert len(await play_all(run.player, run.prompts[:4], 0, samples=4)) == 4
    assert run.player.slots.sampling == 0
