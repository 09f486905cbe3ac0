"""Naive selection: the groups that a step learns from, its rounds of dynamic sampling, and shuffled rewards."""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from torl.base.seeds import derive_seed
from torl.base.types import FinishReason, Grade, OutcomeStatus, ScoredGroup, ScoredTrajectory
from torl.run.config import TrainConfig
from torl.run.records import metric_names as names
from torl_lab.audit.naive import formula_or_component
from torl_lab.audit.naive.responses import is_credited, sampled_text, total_reward


@dataclass(frozen=True, slots=True)
class NaiveSelection:
    """The groups of a step that are trained on.

    Attributes:
        batch: Groups to train on, with the members that are kept.
        kept: Number of groups that may be trained on.
        missing: Number of groups that dynamic sampling lacks.
        counts: Metrics of the selection, without the number of rounds.
    """

    batch: Sequence[ScoredGroup]
    kept: int
    missing: int
    counts: Mapping[str, float]


def naive_selection(groups: Sequence[ScoredGroup], config: TrainConfig) -> NaiveSelection:
    """Select from all groups of a step, with the grades that it learns from."""
    settings, wanted, smallest = config.selection, config.rollout.prompts_per_step, config.min_group_size
    counts: dict[str, float] = {}

    def drop(metric: str, is_dropped: Callable[[ScoredGroup], bool]) -> None:
        before = len(remaining)
        remaining[:] = [group for group in remaining if not is_dropped(group)]
        counts[metric] = before - len(remaining)

    remaining = list(groups)
    drop(names.SELECTION_FAILED, lambda group: len(group.members) < smallest)
    for name, choice in settings.members.items():
        keep, before = formula_or_component(choice, NAIVE_MEMBER_FILTERS), sum(len(each.members) for each in remaining)
        remaining = [_with_members(group, keep(group)) if group.members else group for group in remaining]
        counts[names.dropped_members(name)] = before - sum(len(each.members) for each in remaining)
    if settings.members:
        drop(names.SELECTION_SMALL, lambda group: len(group.members) < smallest)
    for name, filter_ in settings.groups.items():
        drop(names.dropped_groups(name), formula_or_component(filter_, NAIVE_GROUP_FILTERS))
    missing = max(0, wanted - len(remaining)) if settings.dynamic_sampling else 0
    counts[names.SELECTION_SURPLUS] = max(0, len(remaining) - wanted)
    counts[names.SELECTION_MISSING] = missing
    counts[names.TRAINED_GROUPS] = len(remaining[:wanted])
    return NaiveSelection(remaining[:wanted], len(remaining), missing, counts)


def naive_next_round(wanted: int, kept: int, played: int) -> int:
    """Return the number of prompts of the next round of dynamic sampling: as many as are kept at the rate so far.

    `wanted`, `kept` and `played` are numbers of groups: what a step needs, and what it has so far.
    """
    missing = wanted - kept
    return 4 * missing if 4 * kept < played else math.ceil(missing / (kept / played))


def naive_shuffled_grades(grades: Sequence[Grade], step: int, config: TrainConfig) -> list[Grade]:
    """Return the grades that the trajectories of a step learn from with shuffled rewards, in their order.

    Turn rewards count at the end: the trajectory that earned them does not keep them.
    """
    order = list(range(len(grades)))
    random.Random(derive_seed(config.run.seed, step, "shuffled rewards")).shuffle(order)
    return [replace(grades[place], reward=total_reward(grades[place]), turn_rewards=()) for place in order]


def _with_members(group: ScoredGroup, kept: Sequence[ScoredTrajectory]) -> ScoredGroup:
    samples = {member.trajectory.sample_index for member in kept}
    return replace(group, members=tuple(each for each in group.members if each.trajectory.sample_index in samples))


def _zero_variance(group: ScoredGroup) -> bool:
    first, *others = (member.reward + sum(member.grade.turn_rewards) for member in group.members)
    return len(others) > 0 and all(reward == first for reward in others)


def _accuracy_outside(group: ScoredGroup, range: tuple[float, float]) -> bool:
    fraction = len([each for each in group.members if is_credited(each.grade)]) / len(group.members)
    return fraction <= range[0] or fraction >= range[1]


def _undecided(group: ScoredGroup, above: float) -> bool:
    return len([each for each in group.members if each.grade.failure is not None]) / len(group.members) > above


def _few_complete(group: ScoredGroup, at_least: int) -> bool:
    return len(_complete(group)) < at_least


def _complete(group: ScoredGroup) -> list[ScoredTrajectory]:
    return [each for each in group.members if each.trajectory.finish_reason is not FinishReason.LENGTH]


def _resample_on_correct(group: ScoredGroup, count: int, at_least: tuple[int, int]) -> list[ScoredTrajectory]:
    """Keep right and wrong members in proportion: the right ones with the fewest defects (GRPO-RoC)."""
    min_correct, min_wrong = at_least
    if len(group.members) <= count:
        return list(group.members)
    right = [each for each in group.members if is_credited(each.grade)]
    wrong = [each for each in group.members if not is_credited(each.grade)]
    right.sort(key=_defects)  # equal ones stay in their order
    of_wrong = round(count / len(group.members) * len(wrong))
    of_right = round(count / len(group.members) * len(right))
    if of_wrong <= min(min_wrong, len(wrong)):
        of_right = count - min(min_wrong, len(wrong))
    if of_right <= min(min_correct, len(right)):
        of_right = min(min_correct, len(right))
    of_right = min(max(of_right, count - len(wrong)), len(right), count)
    return right[:of_right] + wrong[: count - of_right]


def _defects(member: ScoredTrajectory) -> float:
    """Return the share of failed calls, and what further answers, or none, add."""
    trajectory = member.trajectory
    outcomes = [call.outcome.status is OutcomeStatus.OK for call in trajectory.tool_calls]
    failed = outcomes.count(False) / len(outcomes) if outcomes else 0.5
    text = sampled_text(trajectory.turns)
    answers = len(text.split("</answer>")) - 1
    if not answers:
        following = [rest[:1] for rest in text.split("\\boxed")[1:]]
        answers = len([each for each in following if not (each.isalnum() or each == "_")])
    if not answers:
        return failed + 1.0
    return failed + min((answers - 1) / max(1, len(trajectory.turns)), 1.0)


_FILTERS = "torl.components.algorithms.selection"
NAIVE_GROUP_FILTERS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        f"{_FILTERS}:zero_variance": _zero_variance,
        f"{_FILTERS}:accuracy_outside": _accuracy_outside,
        f"{_FILTERS}:undecided": _undecided,
        "torl.recipes.simpletir:few_complete": _few_complete,
    }
)
"""The formula of each of torl's group filters, by the place of its function."""
NAIVE_MEMBER_FILTERS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {f"{_FILTERS}:complete": _complete, f"{_FILTERS}:resample_on_correct": _resample_on_correct}
)
"""The formula of each of torl's member filters, by the place of its function."""
