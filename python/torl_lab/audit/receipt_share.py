"""The random share of a run's calls and groups that the check of its receipt runs and grades again."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import SystemRandom
from typing import Any, TypeVar

from torl.run.records.files import training_files
from torl.run.records.reading import read_rows

Item = TypeVar("Item")


@dataclass(slots=True)
class DrawnShare:
    """The places of drawn calls and groups, by the files of the steps in their order.

    Attributes:
        total: Number of calls that could have been drawn.
        calls: Calls: line of the trajectory from 0, and position in it.
        groups: Names of groups.
    """

    total: int
    calls: dict[Path, list[tuple[int, int]]] = field(default_factory=dict)
    groups: dict[Path, list[str]] = field(default_factory=dict)


def draw_share(directory: Path, share: float) -> DrawnShare:
    """Draw calls and groups of a run. Only places stay in memory: the trajectories of a run may not fit.

    Raises:
        RecordError: A file is damaged.
    """
    calls: list[tuple[Path, int, int]] = []
    groups: dict[tuple[Path, str], None] = {}
    for path in training_files(directory):
        for line, row in enumerate(read_rows(path)):
            groups[path, row["group"]] = None
            if not row.get("branches") and row.get("program_answer") is None:
                numbers = (number for number, call in enumerate(row["tool_calls"]) if call["tool"] is not None)
                calls += ((path, line, number) for number in numbers)
    drawn = DrawnShare(len(calls))
    for path, line, number in _draw(calls, share):
        drawn.calls.setdefault(path, []).append((line, number))
    for path, name in _draw(list(groups), share):
        drawn.groups.setdefault(path, []).append(name)
    return drawn


def _draw(items: Sequence[Item], share: float) -> list[Item]:
    """Return a random share of items, at least one if there are any, in their order."""
    count = min(len(items), max(1, round(len(items) * share)))
    return [items[index] for index in sorted(SystemRandom().sample(range(len(items)), count))]


def read_lines(path: Path, lines: Collection[int]) -> dict[int, Mapping[str, Any]]:
    """Return some rows of a file by their lines, from 0."""
    return {line: row for line, row in enumerate(read_rows(path)) if line in lines}


def read_groups(path: Path, names: Sequence[str]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the rows of some groups of a file by the names of the groups."""
    found: dict[str, list[Mapping[str, Any]]] = {name: [] for name in names}
    for row in read_rows(path):
        if row["group"] in found:
            found[row["group"]].append(row)
    return found
