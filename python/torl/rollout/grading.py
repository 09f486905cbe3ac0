"""Grading of groups."""

import asyncio
from collections.abc import Sequence

from torl.base.runtime.processes.watchdogs import PendingCalls
from torl.base.types import Group, ScoredGroup, ScoredTrajectory
from torl.components.rewards import Reward


async def score_group(reward: Reward, group: Group, calls: PendingCalls | None = None) -> ScoredGroup:
    """Grade a group.

    Args:
        reward: Reward that grades it.
        group: Group to grade.
        calls: Register of pending calls, for the detection of hangs.

    Raises:
        RewardError: The grader failed.
        ComponentError: The reward raised an exception, or returned invalid grades.
    """
    with (calls or PendingCalls()).open("the reward"):
        grades = await reward.grade(group)
    scored = zip(group.trajectories, grades, strict=True)
    return ScoredGroup(
        group.prompt, tuple(ScoredTrajectory(trajectory, grade, grade.reward) for trajectory, grade in scored)
    )


async def score_groups(
    reward: Reward, groups: Sequence[Group], calls: PendingCalls | None = None
) -> tuple[ScoredGroup, ...]:
    """Grade groups concurrently, and return them in order.

    Raises:
        RewardError: The grader failed.
        ComponentError: The reward raised an exception, or returned invalid grades.
    """
    return tuple(await asyncio.gather(*(score_group(reward, group, calls) for group in groups)))
