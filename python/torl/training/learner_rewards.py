"""The rewards that the learner is told: those that were graded, after a control experiment and normalization."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random

from torl.algorithms.rewards import normalize_rewards
from torl.types import ScoredGroup, ScoredTrajectory


def with_shuffled_rewards(groups: Sequence[ScoredGroup], seed: int) -> list[ScoredGroup]:
    """A control experiment: what the trajectories are paid, permuted among all of them.

    Pay for single turns arrives at the end here, so that none of it stays with the trajectory that earned it.
    """
    paid = [member.grade.total for group in groups for member in group.members]
    Random(seed).shuffle(paid)
    return [
        replace(
            group, members=tuple(replace(each, grade=replace(each.grade, turn_rewards=())) for each in group.members)
        )
        for group in _with_rewards(groups, paid)
    ]


def with_normalized_rewards(groups: Sequence[ScoredGroup]) -> list[ScoredGroup]:
    """The rewards at the end brought to mean 0 and standard deviation 1 over all trajectories."""
    rewards = [member.reward for group in groups for member in group.members]
    return _with_rewards(groups, normalize_rewards(rewards).tolist())


def _with_rewards(groups: Sequence[ScoredGroup], rewards: Iterable[float]) -> list[ScoredGroup]:
    """The groups, with the rewards of all their members one after the other."""
    following = iter(rewards)

    def told(member: ScoredTrajectory) -> ScoredTrajectory:
        return replace(member, reward=next(following))

    return [replace(group, members=tuple(map(told, group.members))) for group in groups]
