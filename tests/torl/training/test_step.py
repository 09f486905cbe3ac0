"""One step: it is played until its batch is full, with a bound, and its selection is written down."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from builders import call, failed, grade, printed, scored, scored_group, trajectory
from scripted_engine import ENCODER
from scripted_run import ScriptedRun
from torl.base.errors import ComponentError, EngineError, RewardError, SandboxError
from torl.base.types import Grade, Group, OutcomeStatus, ScoredGroup
from torl.components.rewards import Reward
from torl.training.health import require_working_tools
from torl.training.selection import with_normalized_rewards, with_shuffled_rewards
from torl.training.step import PlayedStep


def problems(groups: Sequence[ScoredGroup]) -> list[str]:
    return [group.prompt.problem.id for group in groups]


def number(group: ScoredGroup) -> int:
    return int(group.prompt.problem.id.removeprefix("p"))


def rewards(groups: Sequence[ScoredGroup]) -> list[float]:
    return [member.reward for group in groups for member in group.members]


def graded(played: PlayedStep) -> list[float]:
    return [member.grade.reward for group in played.groups for member in group.members]


# --- filling the batch --------------------------------------------------------------------------------------------


async def test_without_dynamic_sampling_a_step_plays_its_prompts_once(tmp_path: Path) -> None:
    run = ScriptedRun(tmp_path, lambda number: number % 2, problems=20, selection={"groups": {"zero_variance": {}}})
    played = await run.step_player.play(0)
    assert problems(played.groups) == run.order(4)
    assert [[member.trajectory.sample_index for member in group.members] for group in played.groups] == [[0, 1]] * 4
    signal = [group for group in played.groups if number(group) % 2]
    assert list(played.batch) == signal
    assert played.counts["selection/dropped_groups/zero_variance"] == 4 - len(signal)
    assert played.counts["selection/rounds"] == 1
    assert played.counts["selection/missing_groups"] == 0
    assert len(played.trajectories) == 8


async def test_rounds_are_played_until_the_batch_is_full(tmp_path: Path) -> None:
    selection = {"groups": {"accuracy_outside": {"range": [0.0, 1.0]}}, "max_rounds": 10}
    run = ScriptedRun(tmp_path, lambda number: number % 5 == 0, problems=200, selection=selection)
    played = await run.step_player.play(0)
    assert len(played.batch) == 4
    assert all(len(group.members) == 2 and number(group) % 5 == 0 for group in played.batch)
    assert sorted(rewards(played.batch)) == [-1.0] * 4 + [1.0] * 4
    assert played.counts["selection/rounds"] > 1
    assert played.counts["selection/missing_groups"] == 0
    left_out = played.counts["selection/dropped_groups/accuracy_outside"] + played.counts["selection/surplus_groups"]
    assert len(played.groups) == 4 + left_out
    # The groups that were sampled first: those that are short do not push in.
    assert list(played.batch) == [group for group in played.groups if number(group) % 5 == 0][:4]
    assert problems(played.groups) == run.order(len(played.groups))
    assert "kept after" not in run.said.getvalue()


async def test_surplus_groups_of_a_round_are_not_trained_on(tmp_path: Path) -> None:
    # Of the first round's four problems only the last has a signal; of the twelve of the second round all have.
    order = ScriptedRun(tmp_path).order(16)
    without = {int(name.removeprefix("p")) for name in order[:3]}
    selection = {"groups": {"zero_variance": {}}, "max_rounds": 10}
    played = await ScriptedRun(tmp_path, lambda number: number not in without, selection=selection).step_player.play(0)
    assert played.counts["selection/rounds"] == 2
    assert played.counts["selection/surplus_groups"] == 13 - 4
    assert problems(played.batch) == order[3:7]


async def test_rounds_have_an_end(tmp_path: Path) -> None:
    selection = {"groups": {"zero_variance": {}}, "max_rounds": 3}
    run = ScriptedRun(tmp_path, lambda _: False, problems=200, selection=selection)
    played = await run.step_player.play(0)
    assert played.batch == ()
    assert played.counts["selection/rounds"] == 3
    assert played.counts["selection/missing_groups"] == 4
    assert "step 1: 0 of 4 groups kept after 3 rounds" in run.said.getvalue()


async def test_no_problem_is_played_twice_in_a_step(tmp_path: Path) -> None:
    """Also if there are fewer problems than the rounds ask for, and an epoch ends in the middle of the step."""
    selection = {"groups": {"zero_variance": {}}, "max_rounds": 50}
    run = ScriptedRun(tmp_path, lambda number: number == 3, problems=7, selection=selection)
    played = await run.step_player.play(0)
    assert sorted(problems(played.groups)) == [f"p{number}" for number in range(7)]
    assert problems(played.batch) == ["p3"]
    assert played.counts["selection/missing_groups"] == 3


# --- rewards ------------------------------------------------------------------------------------------------------


async def test_long_responses_are_punished_before_anything_is_selected(tmp_path: Path) -> None:
    run = ScriptedRun(
        tmp_path,
        problems=4,
        reward={"parts": {"answer": "math", "length": {"name": "overlong", "buffer": 39}}},
        selection={"groups": {"zero_variance": {}}},
    )
    played = await run.step_player.play(0)
    for group in played.groups:
        for member in group.members:
            punishment = min(1, max(0, (len(member.trajectory) - 1) / 39))
            answer = 1 if member.grade.correct else -1
            assert member.reward == member.grade.reward == pytest.approx(answer - punishment)
            assert member.grade.parts == pytest.approx({"answer": answer, "length": -punishment})
            assert punishment > 0


async def test_batch_rewards_are_normalized_on_request(tmp_path: Path) -> None:
    played = await ScriptedRun(tmp_path, problems=4, algorithm={"normalize_rewards": True}).step_player.play(0)
    assert sorted(set(rewards(played.groups))) == [-1.0, 1.0]  # as graded
    deviation = (8 / 7) ** 0.5  # of four times 1 and four times -1
    assert sorted(rewards(played.batch)) == pytest.approx([-1 / deviation] * 4 + [1 / deviation] * 4, rel=1e-5)
    plain = await ScriptedRun(tmp_path, problems=4).step_player.play(0)
    assert sorted(rewards(plain.batch)) == [-1.0] * 4 + [1.0] * 4


async def test_shuffled_rewards_are_a_permutation_within_the_step(tmp_path: Path) -> None:
    run = ScriptedRun(tmp_path, ablation={"shuffle": "rewards"})
    steps: list[PlayedStep] = []
    for step in range(6):
        run.version = step
        steps.append(await run.step_player.play(step))
    for played in steps:
        assert sorted(rewards(played.batch)) == sorted(graded(played))
        assert rewards(played.groups) == graded(played)  # the records are the grades
    assert len({tuple(rewards(played.batch)) for played in steps}) > 3


def test_shuffled_rewards_leave_no_pay_with_the_turns_that_earned_it() -> None:
    groups = [scored_group(*(scored(reward=float(reward), turn_rewards=[0.5]) for reward in range(8)))]
    (shuffled,) = with_shuffled_rewards(groups, seed=1)
    assert sorted(member.reward for member in shuffled.members) == [reward + 0.5 for reward in range(8)]
    assert [member.reward for member in shuffled.members] != [reward + 0.5 for reward in range(8)]
    assert all(member.grade.turn_rewards == () for member in shuffled.members)
    assert [one.trajectory for one in shuffled.members] == [one.trajectory for one in groups[0].members]


def test_rewards_are_normalized_over_all_groups() -> None:
    groups = [scored_group(scored(reward=0.0)), scored_group(scored(reward=1.0), scored(reward=5.0))]
    assert rewards(with_normalized_rewards(groups)) == pytest.approx([-2 / 7**0.5, -1 / 7**0.5, 3 / 7**0.5], rel=1e-5)
    assert rewards(groups) == [0.0, 1.0, 5.0]
    assert with_normalized_rewards([]) == []


# --- grading ------------------------------------------------------------------------------------------------------


class SlowReward(Reward):
    """Rewards nothing, after `seconds`; remembers the engine's number of requests at each call."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.run: Any = None
        self.open: list[int] = []

    async def grade(self, group: Group) -> list[Grade]:
        """One after the other."""
        self.open.append(self.run.engine.open)
        await asyncio.sleep(self.seconds)
        return [grade(False, 0.0) for _ in group.trajectories]


async def test_groups_are_graded_while_others_still_play(tmp_path: Path) -> None:
    reward = SlowReward()
    reward.run = ScriptedRun(tmp_path, slots=3, graded_by=reward)
    await reward.run.step_player.play(0)
    assert len(reward.open) == 4
    assert reward.open[0] > 0
    assert reward.open[-1] == 0


async def test_the_time_that_only_grades_were_awaited_is_measured(tmp_path: Path) -> None:
    reward = SlowReward(0.3)
    reward.run = ScriptedRun(tmp_path, graded_by=reward)
    played = await reward.run.step_player.play(0)
    assert 0.25 < played.reward_seconds <= played.seconds
    rounds = {"groups": {"zero_variance": {}}, "max_rounds": 2}
    reward.run = ScriptedRun(tmp_path, graded_by=reward, selection=rounds)
    assert (await reward.run.step_player.play(0)).reward_seconds > 0.55


class ShortReward(Reward):
    """Forgets the last trajectory."""

    async def grade(self, group: Group) -> list[Grade]:
        """One too few."""
        return [grade() for _ in group.trajectories[1:]]


class FailingReward(ShortReward):
    """Grades every trajectory, and fails its check."""

    async def grade(self, group: Group) -> list[Grade]:
        return [grade() for _ in group.trajectories]

    async def check(self) -> None:
        raise RewardError("the grader has crashed")


async def test_reward_is_checked_after_each_step(tmp_path: Path) -> None:
    with pytest.raises(RewardError, match="the grader has crashed"):
        await ScriptedRun(tmp_path, graded_by=FailingReward()).step_player.play(0)


async def test_a_reward_that_forgets_a_trajectory_stops_the_run_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(ExceptionGroup) as raised:
        await ScriptedRun(tmp_path, graded_by=ShortReward()).step_player.play(0)
    assert raised.group_contains(ComponentError, match=r"ShortReward\) .*\nexpected 2 grades, .*; got 1")


# --- a host that does not work ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "calls", "broken"), [(9, 16, True), (8, 16, False), (9, 8, False)])
async def test_tool_with_mostly_crashing_calls_stops_the_run(
    tmp_path: Path, share: int, calls: int, broken: bool
) -> None:
    """More than half of at least 16 calls; fewer calls show nothing."""
    rollout = {"prompts_per_step": calls // 2, "max_response_tokens": 400}
    run = ScriptedRun(tmp_path, problems=calls // 2, rollout=rollout)
    run.engine.script = lambda request: ENCODER.encode(
        "\n```python\n1\n```\n```output" if request.endswith("/0") else "x"
    )
    crash = failed("", status=OutcomeStatus.CRASH)
    run.tool.outcome = lambda count: crash if count < share else printed()
    if broken:
        with pytest.raises(SandboxError, match="9 of 16 calls of the tool 'python' crashed"):
            await run.step_player.play(0)
    else:
        played = await run.step_player.play(0)
        assert sum(len(each.tool_calls) for each in played.trajectories) == calls


async def test_each_tool_is_judged_by_its_own_calls() -> None:
    crash = failed("", status=OutcomeStatus.CRASH)
    calls = [call(outcome=crash, tool="search") for _ in range(16)] + [call() for _ in range(40)]
    with pytest.raises(SandboxError, match="16 of 16 calls of the tool 'search'"):
        await require_working_tools({}, [trajectory(*[""] * 57, calls=calls)])
    nothing_ran = [call(None) for _ in range(20)] + [call(outcome=crash) for _ in range(15)]
    await require_working_tools({}, [trajectory(*[""] * 36, calls=nothing_ran)])


async def test_a_tool_that_fails_its_check_after_a_step_stops_the_run(tmp_path: Path) -> None:
    run = ScriptedRun(tmp_path)
    run.tool.broken = SandboxError("the self-test failed")
    with pytest.raises(SandboxError, match="the self-test failed"):
        await run.step_player.play(0)


@pytest.mark.parametrize(("version", "allowed"), [(0, False), (1, False), (2, True), (3, True), (4, True), (5, False)])
async def test_samples_of_a_policy_that_the_step_does_not_allow_are_refused(
    tmp_path: Path, version: int, allowed: bool
) -> None:
    """As after a resumption that did not give the learner's weights to the engine."""
    run = ScriptedRun(tmp_path, staleness=2)
    run.version = version
    if allowed:
        assert len((await run.step_player.play(4)).trajectories) == 8
    else:
        with pytest.raises(EngineError, match=f"policy version {version} .* step 4 .* versions 2 to 4"):
            await run.step_player.play(4)


async def test_one_token_of_another_policy_is_enough_to_refuse_a_step(tmp_path: Path) -> None:
    run = ScriptedRun(tmp_path)
    run.engine.version = lambda request: 1 if request == f"0/{run.order(3)[2]}/1/0" else 0
    with pytest.raises(EngineError, match=r"policy version 1 .* step 0 .* versions 0 to 0"):
        await run.step_player.play(0)
