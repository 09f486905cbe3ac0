"""Filters of groups and of members: which trajectories a step learns from at all. No torch.

A dropped trajectory enters neither the loss nor the statistics of its group, unlike a masked one (`masks`).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from torl.base.guard import InvalidResultError, describe
from torl.base.options import ChosenFrom, NonNegativeInt, PositiveFraction, PositiveInt
from torl.base.types import FinishReason, ScoredGroup, ScoredTrajectory

_BOX = re.compile(r"\\boxed\b")


class GroupFilter(Protocol):
    '''A group filter: a function of a group and its own options that returns whether the group is dropped.

    Example: drop groups whose correct responses all use no tool.

        from torl import ScoredGroup

        def toolless(group: ScoredGroup, min_calls: int = 1) -> bool:
            """Whether fewer than `min_calls` correct responses call a tool."""
            calls = [member.trajectory.tool_calls for member in group.members if member.grade.correct]
            return sum(map(bool, calls)) < min_calls

        [selection.groups.toolless]
        name = "my_package.selection:toolless"
        min_calls = 2
    '''

    def __call__(self, group: ScoredGroup, /) -> bool:
        """Decide on a group, with the options already bound."""
        ...


class MemberFilter(Protocol):
    '''A member filter: a function of a group and its own options that returns the members that are kept.

    Example: keep the shortest responses.

        from torl import ScoredGroup, ScoredTrajectory

        def shortest(group: ScoredGroup, count: int = 8) -> list[ScoredTrajectory]:
            """The `count` shortest responses of the group."""
            return sorted(group.members, key=lambda member: len(member.trajectory))[:count]

        [selection.members.shortest]
        name = "my_package.selection:shortest"
        count = 4

    For random choices, use `random.Random(group.id)`: an audit asks again and expects the same members.
    '''

    def __call__(self, group: ScoredGroup, /) -> Sequence[ScoredTrajectory]:
        """Choose members of a group, in any order, with the options already bound."""
        ...


def zero_variance(group: ScoredGroup) -> bool:
    """Drop groups whose rewards are all equal."""
    return group.has_zero_variance


def accuracy_outside(group: ScoredGroup, range: tuple[float, float]) -> bool:
    """Drop groups whose fraction of rewarded answers is not strictly between two bounds.

    Args:
        group: Group.
        range: Lower and upper bound.
    """
    low, high = range
    return not low < group.credited_fraction < high


def undecided(group: ScoredGroup, above: PositiveFraction) -> bool:
    """Drop groups in which the grader failed on too many answers.

    Args:
        group: Group.
        above: Maximum fraction of answers without a verdict.
    """
    return sum(member.grade.failure is not None for member in group.members) / len(group.members) > above


def complete(group: ScoredGroup) -> list[ScoredTrajectory]:
    """Keep the responses that were not cut at the token limit."""
    return [member for member in group.members if member.trajectory.finish_reason is not FinishReason.LENGTH]


def resample_on_correct(
    group: ScoredGroup, count: PositiveInt, at_least: tuple[NonNegativeInt, NonNegativeInt] = (2, 2)
) -> list[ScoredTrajectory]:
    """Keep `count` members, in proportion: the correct ones with the fewest defects, wrong ones as sampled (GRPO-RoC).

    Sample more than is learned from: rStar2 (arXiv 2508.20722) samples 32 and keeps 16. The numbers are those of
    `roc.py` in its code.

    Args:
        group: Group.
        count: Number of members that are kept. Smaller groups are kept as a whole.
        at_least: Minimum numbers of correct and of wrong members, if there are as many.
    """
    min_correct, min_wrong = at_least
    members = list(group.members)
    if len(members) <= count:
        return members
    correct = sorted((member for member in members if member.grade.credited), key=defects)
    wrong = [member for member in members if not member.grade.credited]
    share = count / len(members)
    kept_wrong, kept_correct = round(len(wrong) * share), round(len(correct) * share)
    if kept_wrong <= (least := min(min_wrong, len(wrong))):
        kept_wrong, kept_correct = least, count - least
    if kept_correct <= (least := min(min_correct, len(correct))):
        kept_correct = least
    kept_correct = min(max(kept_correct, count - len(wrong)), len(correct), count)
    chosen = {id(member) for member in correct[:kept_correct] + wrong[: count - kept_correct]}
    return [member for member in members if id(member) in chosen]


def defects(member: ScoredTrajectory) -> float:
    """Return the penalty of rStar2 for failed calls and for the number of answers, from 0 to 2.

    It is the share of failed calls, 0.5 without a call, plus 1 without an answer, else min((answers - 1) / turns, 1).
    Answers are `<answer>` elements, or boxes in a response without any.
    """
    calls = member.trajectory.tool_calls
    failed = sum(not call.outcome.ok for call in calls) / len(calls) if calls else 0.5
    text = member.trajectory.sampled_text
    answers = text.count("</answer>") or len(_BOX.findall(text))
    turns = max(1, len(member.trajectory.turns))
    return failed + (min((answers - 1) / turns, 1.0) if answers else 1.0)


def check_group_filter(dropped: object, group: ScoredGroup) -> None:
    """Check the result of a group filter.

    Raises:
        InvalidResultError: `dropped` is not a bool.
    """
    if not isinstance(dropped, bool):
        raise InvalidResultError(f"expected bool, got {describe(dropped)}")


def check_member_filter(kept: object, group: ScoredGroup) -> None:
    """Check the result of a member filter.

    Raises:
        InvalidResultError: `kept` is not a list of different members of the group.
    """
    if not isinstance(kept, Sequence):
        raise InvalidResultError(f"expected a list of members of the group, got {describe(kept)}")
    members, chosen = {id(member) for member in group.members}, [id(each) for each in kept]
    if not members.issuperset(chosen):
        raise InvalidResultError("expected members of the group, got another object")
    if len(set(chosen)) < len(chosen):
        raise InvalidResultError("expected different members, got one of them twice")


GROUP_FILTERS: Mapping[str, Callable[..., bool] | str] = MappingProxyType(
    {
        "zero_variance": zero_variance,
        "accuracy_outside": accuracy_outside,
        "undecided": undecided,
        "few_complete": "torl.recipes.simpletir:few_complete",
    }
)
"""Built-in group filters by their names in configurations."""

MEMBER_FILTERS: Mapping[str, Callable[..., Sequence[ScoredTrajectory]]] = MappingProxyType(
    {"complete": complete, "resample_on_correct": resample_on_correct}
)
"""Built-in member filters by their names in configurations."""

GROUP_FILTER = ChosenFrom(GROUP_FILTERS, "group filter", positional_count=1, check=check_group_filter, by_step=True)
MEMBER_FILTER = ChosenFrom(MEMBER_FILTERS, "member filter", positional_count=1, check=check_member_filter, by_step=True)
