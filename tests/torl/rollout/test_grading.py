"""Grades that a reward may return for a group; any other value stops the run instead of teaching nonsense."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from builders import asked, grade, group, trajectory
from torl.base.errors import ComponentError
from torl.base.types import Grade, Group
from torl.components.rewards import Reward
from torl.rollout.grading import score_group, score_groups

GROUP = group(trajectory("a", "b"), trajectory("c", sample=1))


@dataclass
class Fixed(Reward):
    """Grades every group alike."""

    grades: Sequence[Grade]

    async def grade(self, group: Group) -> Sequence[Grade]:
        return self.grades


async def test_grades_meet_their_trajectories() -> None:
    grades = [grade(True, 0.5, turn_rewards=(0.25, 0.0)), grade(False, -1.0)]
    scored = await score_group(Fixed(grades), GROUP)
    assert scored.prompt is GROUP.prompt
    assert [member.trajectory.sample_index for member in scored.members] == [0, 1]
    assert [member.grade for member in scored.members] == grades
    assert [member.reward for member in scored.members] == [0.5, -1.0]  # turns are rewarded elsewhere
    assert scored.accuracy == 0.5


async def test_groups_keep_their_order() -> None:
    groups = [group(trajectory(prompt=asked(name)), trajectory(prompt=asked(name))) for name in "abc"]
    scored = await score_groups(Fixed([grade(), grade()]), groups)
    assert [each.prompt.problem.id for each in scored] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("grades", "message"),
    [
        (
            [grade()],
            r"grading:Fixed\) returned an invalid .*grade\(Group of problem .*\nexpected 2 grades, .*; got 1\nat ",
        ),
        ([grade()] * 3, "expected 2 grades, one for each trajectory; got 3"),
        ([grade(), grade(reward=math.nan)], "the rewards of trajectory 1 must be finite: reward = nan"),
        ([grade(reward=math.inf), grade()], "the rewards of trajectory 0 must be finite: reward = inf"),
        (
            [grade(turn_rewards=(0.0, math.nan)), grade()],
            r"the rewards of trajectory 0 must be finite: .*turn_rewards = \(0.0, nan\)",
        ),
        ([grade(turn_rewards=(1.0,)), grade()], "expected 2 turn rewards, one for each turn of trajectory 0; got 1"),
        (
            [grade(), grade(turn_rewards=(1.0, 1.0))],
            "expected 1 turn rewards, one for each turn of trajectory 1; got 2",
        ),
    ],
)
async def test_grades_that_cannot_be_are_refused(grades: list[Grade], message: str) -> None:
    with pytest.raises(ComponentError, match=message):
        await score_group(Fixed(grades), GROUP)


class Endless(Reward):
    """Never says anything, unless it gives itself up."""

    def __init__(self, gives_up: bool) -> None:
        self.gives_up = gives_up

    async def grade(self, group: Group) -> Sequence[Grade]:
        if self.gives_up:
            raise asyncio.CancelledError
        await asyncio.Event().wait()
        raise AssertionError("unreachable")


async def test_a_reward_that_is_cancelled_from_inside_is_broken_and_from_outside_is_not() -> None:
    with pytest.raises(ComponentError, match=r"Endless\) cancelled grade\(.*\) itself"):
        await score_group(Endless(gives_up=True), GROUP)
    grading = asyncio.ensure_future(score_group(Endless(gives_up=False), GROUP))
    await asyncio.sleep(0)
    grading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await grading
