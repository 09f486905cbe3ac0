"""Accuracy and use of code by kinds of problems: whether a model writes code where it helps, and where it does not."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from torl.errors import ConfigError
from torl.records import metric_names as names
from torl.types import ScoredGroup, ScoredTrajectory

MAX_VALUES: Final = 64
MISSING: Final = "none"
"""The kind of problems that do not have the field."""


def dynamics_by_value(groups: Sequence[ScoredGroup], field: str) -> dict[str, float]:
    """Accuracy and code ratio of each kind of problems, by name (`metric_names.kind_name`).

    Args:
        groups: those of one step, or of one evaluation.
        field: of the problems' metadata; its values are the kinds.

    Raises:
        ConfigError: there are more kinds than anyone reads: the field names problems, not kinds of them.
    """
    kinds: defaultdict[str, list[ScoredTrajectory]] = defaultdict(list)
    for group in groups:
        kinds[str(group.prompt.problem.metadata.get(field, MISSING))] += group.members
    count = len(kinds)
    if count > MAX_VALUES:
        raise ConfigError(
            f"run.group_metrics_by: {field!r} has {count} values in one step; {MAX_VALUES} can be told apart"
        )
    metrics: dict[str, float] = {}
    for kind, members in sorted(kinds.items()):
        with_code = sum(any(turn.blocks for turn in member.trajectory.turns) for member in members)
        metrics[names.kind_name(kind, names.ACCURACY)] = sum(member.grade.correct for member in members) / len(members)
        metrics[names.kind_name(kind, names.CODE_RATIO)] = with_code / len(members)
    return metrics
