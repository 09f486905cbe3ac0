"""The groups of a step that are trained on, the rewards used for training, and the masks of trajectories."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

import numpy as np

from torl.algorithms.masks import wants_reference
from torl.algorithms.rewards import normalize_rewards
from torl.config import SelectionConfig, TrainConfig
from torl.records import metric_names as names
from torl.types import BoolArray, Float32Array, ScoredGroup, ScoredTrajectory, TrainingSample

_MAX_SHOWN = 5  # rewards in a message


@dataclass(frozen=True, slots=True)
class Selection:
    """The groups that may enter the batch, and the numbers of dropped groups.

    Attributes:
        kept: Groups that may enter the batch, in their original order.
        zero_variance: Number of groups dropped because all their rewards are equal.
        out_of_range: Number of groups dropped because of their fraction of rewarded answers.
        undecided: Number of groups dropped because the grader failed on too many answers.
    """

    kept: tuple[ScoredGroup, ...]
    zero_variance: int
    out_of_range: int
    undecided: int


def select_groups(groups: Sequence[ScoredGroup], config: SelectionConfig) -> Selection:
    """Drop groups as configured: equal rewards, too few or too many rewarded answers, too many failed grades.

    `accuracy_range` applies to the fraction of credited answers, regardless of other parts of the reward. A dropped
    group is counted under the first reason that applies.
    """
    varied = [group for group in groups if not (config.drop_zero_variance_groups and group.has_zero_variance)]
    in_range = varied
    if config.accuracy_range is not None:
        low, high = config.accuracy_range
        in_range = [group for group in varied if low < group.credited_fraction < high]
    kept = in_range
    if (limit := config.drop_undecided_above) is not None:
        kept = [group for group in in_range if undecided_fraction(group) <= limit]
    return Selection(tuple(kept), len(groups) - len(varied), len(varied) - len(in_range), len(in_range) - len(kept))


@dataclass(frozen=True, slots=True)
class BatchSelection:
    """The groups of a step that are trained on.

    Attributes:
        batch: Groups to train on, at most `rollout.prompts_per_step`.
        kept: Number of groups that may be trained on.
        missing: Number of groups that dynamic sampling lacks.
        counts: Metrics of the selection.
    """

    batch: tuple[ScoredGroup, ...]
    kept: int
    missing: int
    counts: Mapping[str, float]


def select_batch(groups: Sequence[ScoredGroup], config: TrainConfig) -> BatchSelection:
    """Select the groups to train on from all groups of a step, with the rewards used for training."""
    wanted = config.rollout.prompts_per_step
    comparable = [group for group in groups if len(group.members) >= config.min_group_size]
    chosen = select_groups(comparable, config.selection)
    batch = chosen.kept[:wanted]
    missing = max(0, wanted - len(chosen.kept)) if config.selection.dynamic_sampling else 0
    counts = {
        names.SELECTION_FAILED: len(groups) - len(comparable),
        names.SELECTION_ZERO_VARIANCE: chosen.zero_variance,
        names.SELECTION_OUT_OF_RANGE: chosen.out_of_range,
        names.SELECTION_UNDECIDED: chosen.undecided,
        names.SELECTION_SURPLUS: len(chosen.kept) - len(batch),
        names.SELECTION_MISSING: missing,
    }
    return BatchSelection(batch, len(chosen.kept), missing, counts)


def describe_missing_signal(groups: Sequence[ScoredGroup]) -> str | None:
    """Return a line about a step in which the rewards of every group are equal; None for other steps."""
    if not groups or not all(group.has_zero_variance for group in groups):
        return None
    rewards = sorted({group.members[0].total for group in groups})
    values = ", ".join(f"{reward:g}" for reward in rewards[:_MAX_SHOWN]) + (", ..." if rewards[_MAX_SHOWN:] else "")
    which = "all rewards were" if len(rewards) == 1 else "the rewards of each group were equal:"
    return f"no group had a signal: {which} {values}"


def undecided_fraction(group: ScoredGroup) -> float:
    """Return the fraction of a group's answers on which the grader failed."""
    return sum(member.grade.failure is not None for member in group.members) / len(group.members)


def prompts_for_next_round(wanted: int, kept: int, played: int) -> int:
    """Estimate the number of prompts to play until `wanted` groups are kept, given that `kept` of `played` were.

    The estimate is at most four prompts for each missing group, which bounds the next round if few groups were kept.
    """
    fraction = max(kept / played, 0.25)
    return math.ceil((wanted - kept) / fraction)


def with_shuffled_rewards(groups: Sequence[ScoredGroup], seed: int) -> list[ScoredGroup]:
    """Permute the total rewards among all trajectories, as an ablation.

    Turn rewards are added to the reward at the end, so that none of them stays with the trajectory that earned it.
    """
    rewards = [member.grade.total for group in groups for member in group.members]
    Random(seed).shuffle(rewards)
    return [
        replace(
            group, members=tuple(replace(each, grade=replace(each.grade, turn_rewards=())) for each in group.members)
        )
        for group in _with_rewards(groups, rewards)
    ]


def with_normalized_rewards(groups: Sequence[ScoredGroup]) -> list[ScoredGroup]:
    """Normalize the rewards at the end to mean 0 and standard deviation 1 over all trajectories."""
    rewards = [member.reward for group in groups for member in group.members]
    return _with_rewards(groups, normalize_rewards(rewards).tolist())


def _with_rewards(groups: Sequence[ScoredGroup], rewards: Iterable[float]) -> list[ScoredGroup]:
    """Replace the rewards of all members, in order."""
    remaining = iter(rewards)

    def with_next(member: ScoredTrajectory) -> ScoredTrajectory:
        return replace(member, reward=next(remaining))

    return [replace(group, members=tuple(map(with_next, group.members))) for group in groups]


def masked_trajectories(members: Sequence[ScoredTrajectory], config: SelectionConfig) -> dict[str, BoolArray]:
    """Return for each mask whether it masks each trajectory; masks that need the reference model are left out.

    Several masks may mask a trajectory.
    """
    masks = {name: choice.bind() for name, choice in config.mask.items() if not wants_reference(choice.target)}
    return {name: np.array([mask(member) for member in members], np.bool_) for name, mask in masks.items()}


def masked_by_reference(
    members: Sequence[ScoredTrajectory], samples: Sequence[TrainingSample], config: SelectionConfig
) -> dict[str, BoolArray]:
    """Return for each mask that needs the reference model whether it masks each trajectory.

    Args:
        members: Trajectories.
        samples: Sample of each trajectory, with the reference model's logprobs.
        config: Configuration of the masks.
    """
    masks = {name: choice.bind() for name, choice in config.mask.items() if wants_reference(choice.target)}
    pairs = list(zip(members, samples, strict=True))
    return {name: np.array([mask(*pair) for pair in pairs], np.bool_) for name, mask in masks.items()}


def mask_samples(samples: Sequence[TrainingSample], masks: Mapping[str, BoolArray]) -> list[TrainingSample]:
    """Return the samples, without a loss on those that any mask masks."""
    masked = np.zeros(len(samples), np.bool_)
    for mask in masks.values():
        masked |= mask
    return [_without_loss(sample) if hidden else sample for sample, hidden in zip(samples, masked, strict=True)]


def _without_loss(sample: TrainingSample) -> TrainingSample:
    def zeros(array: Float32Array | None) -> Float32Array | None:
        return None if array is None else np.zeros_like(array)

    return replace(
        sample,
        loss_mask=np.zeros_like(sample.loss_mask),
        advantages=zeros(sample.advantages),
        returns=zeros(sample.returns),
        imitation_weights=zeros(sample.imitation_weights),
    )
