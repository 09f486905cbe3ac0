"""The groups of a step that are trained on, the rewards used for training, and the masks of trajectories."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

import numpy as np

from torl.base.types import BoolArray, Float32Array, ScoredGroup, ScoredTrajectory, TrainingSample
from torl.components.algorithms.masks import wants_reference
from torl.components.algorithms.reward_advantages import normalize_rewards
from torl.run.config import SelectionConfig, TrainConfig
from torl.run.records import metric_names as names

_MAX_SHOWN = 5  # rewards in a message


@dataclass(frozen=True, slots=True)
class Selection:
    """The groups that may enter the batch.

    Attributes:
        kept: Groups that may enter the batch, in their original order, with the members that are kept.
        counts: Numbers of dropped groups and members, by metric.
    """

    kept: tuple[ScoredGroup, ...]
    counts: Mapping[str, int]


def select_groups(groups: Sequence[ScoredGroup], config: SelectionConfig, min_group_size: int = 1) -> Selection:
    """Drop members and groups as configured. A dropped group is counted under the first reason that applies.

    Args:
        groups: Groups of a step.
        config: Member filters, which are applied first, and group filters.
        min_group_size: Minimum number of members of a group after the member filters.

    Raises:
        ComponentError: A filter raised an exception, or returned an invalid value.
    """
    kept, counts = list(groups), dict[str, int]()
    for name, choice in config.members.items():
        before = sum(len(group.members) for group in kept)
        keep = choice.bind()
        kept = [_with_members(group, keep(group)) if group.members else group for group in kept]
        counts[names.dropped_members(name)] = before - sum(len(group.members) for group in kept)
    for metric, is_dropped in _group_filters(config, min_group_size).items():
        remaining = [group for group in kept if not is_dropped(group)]
        counts[metric] = len(kept) - len(remaining)
        kept = remaining
    return Selection(tuple(kept), counts)


def _with_members(group: ScoredGroup, kept: Sequence[ScoredTrajectory]) -> ScoredGroup:
    chosen = {id(member) for member in kept}
    return replace(group, members=tuple(member for member in group.members if id(member) in chosen))


def _group_filters(config: SelectionConfig, min_group_size: int) -> dict[str, Callable[[ScoredGroup], bool]]:
    """Return the group filters of a configuration by the metric that counts the groups that each drops."""
    filters: dict[str, Callable[[ScoredGroup], bool]] = {}
    if config.members:
        filters[names.SELECTION_SMALL] = lambda group: len(group.members) < min_group_size
    return filters | {names.dropped_groups(name): choice.bind() for name, choice in config.groups.items()}


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
    chosen = select_groups(comparable, config.selection, config.min_group_size)
    batch = chosen.kept[:wanted]
    missing = max(0, wanted - len(chosen.kept)) if config.selection.dynamic_sampling else 0
    counts = {
        names.SELECTION_FAILED: len(groups) - len(comparable),
        **chosen.counts,
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


def prompts_for_next_round(wanted: int, kept: int, played: int) -> int:
    """Estimate the number of prompts to play until `wanted` groups are kept, given that `kept` of `played` were.

    The estimate is at most four prompts for each missing group, which bounds the next round if few groups were kept.
    """
    fraction = max(kept / played, 0.25)
    return math.ceil((wanted - kept) / fraction)


def with_shuffled_rewards(groups: Sequence[ScoredGroup], seed: int) -> list[ScoredGroup]:
    """Permute the total rewards among all trajectories, with their parts and correctness, as an ablation.

    Turn rewards are added to the reward at the end, so that none of them stays with the trajectory that earned it.
    """
    grades = [member.grade for group in groups for member in group.members]
    Random(seed).shuffle(grades)
    remaining = iter(grades)

    def with_next(member: ScoredTrajectory) -> ScoredTrajectory:
        grade = next(remaining)
        return replace(member, grade=replace(grade, turn_rewards=()), reward=grade.total)

    return [replace(group, members=tuple(map(with_next, group.members))) for group in groups]


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
