"""Which groups of a step are learned from: the others are left out of the batch altogether, and counted."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torl.config import SelectionConfig
from torl.types import ScoredGroup


@dataclass(frozen=True, slots=True)
class Selection:
    """Which groups may enter the batch."""

    kept: tuple[ScoredGroup, ...]  # in the order that they were given
    uniform: int  # groups left out because all their rewards are equal
    outside_window: int  # groups left out because of the share that is rewarded
    undecided: int  # groups left out because too few of their grades were decided


def select_groups(groups: Sequence[ScoredGroup], config: SelectionConfig) -> Selection:
    """Leave out what is configured: groups of equal rewards, of too few or too many rewarded members, of failed grades.

    What counts for the window is whether an answer is paid as right, in a form that counts; not what a reward adds to
    that. A group is counted under the first reason that applies.
    """
    varied = [group for group in groups if not (config.drop_zero_variance_groups and group.has_zero_variance)]
    inside = varied
    if config.accuracy_range is not None:
        low, high = config.accuracy_range
        inside = [group for group in varied if low < group.credited_fraction < high]
    kept = inside
    if (most := config.drop_undecided_above) is not None:
        kept = [group for group in inside if undecided_fraction(group) <= most]
    return Selection(tuple(kept), len(groups) - len(varied), len(varied) - len(inside), len(inside) - len(kept))


def undecided_fraction(group: ScoredGroup) -> float:
    """The share of its members whose answers the grader could not compare."""
    return sum(member.grade.failure is not None for member in group.members) / len(group.members)


def prompts_for_next_round(wanted: int, kept: int, played: int) -> int:
    """How many prompts to play so that about `wanted` groups are kept, after `kept` of `played` were.

    At most four for each that is missing, so that a round in which hardly any was kept does not ask for thousands.
    """
    share = max(kept / played, 0.25)
    return math.ceil((wanted - kept) / share)
