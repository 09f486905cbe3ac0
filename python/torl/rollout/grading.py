"""Groups and what a reward says of them."""

import asyncio
import math
from collections.abc import Sequence

from torl.errors import RewardError
from torl.rewards import Reward
from torl.runtime.processes.supervision import is_cancelled
from torl.runtime.processes.watchdogs import PendingCalls
from torl.types import Group, ScoredGroup, ScoredTrajectory


async def score_group(reward: Reward, group: Group, calls: PendingCalls | None = None) -> ScoredGroup:
    """Grade a group; `calls` knows of it meanwhile.

    Raises:
        RewardError: the reward is broken, or its grades are not one for each trajectory.
    """
    with (calls or PendingCalls()).open("the reward"):
        try:
            grades = await reward.grade(group)
        except asyncio.CancelledError as error:
            if is_cancelled():
                raise
            raise RewardError(f"{type(reward).__name__}.grade cancelled itself") from error
    if len(grades) != len(group.trajectories):
        raise RewardError(
            f"{type(reward).__name__}.grade gave {len(grades)} grades for {len(group.trajectories)} trajectories"
        )
    for trajectory, grade in zip(group.trajectories, grades, strict=True):
        if not math.isfinite(grade.total):
            raise RewardError(f"{type(reward).__name__}.grade gave a reward that is no number: {grade.total}")
        if grade.turn_rewards and len(grade.turn_rewards) != len(trajectory.turns):
            raise RewardError(
                f"{type(reward).__name__}.grade paid {len(grade.turn_rewards)} turns of a trajectory with "
                f"{len(trajectory.turns)}"
            )
    scored = zip(group.trajectories, grades, strict=True)
    return ScoredGroup(
        group.prompt, tuple(ScoredTrajectory(trajectory, grade, grade.reward) for trajectory, grade in scored)
    )


async def score_groups(
    reward: Reward, groups: Sequence[Group], calls: PendingCalls | None = None
) -> tuple[ScoredGroup, ...]:
    """Grade groups at once, in their order.

    Raises:
        RewardError: see `score_group`.
    """
    return tuple(await asyncio.gather(*(score_group(reward, group, calls) for group in groups)))
