"""Problems over time: all attempts at one problem, and the problems that were gained and lost."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

import numpy as np

from torl.run.display.series import half_width
from torl_lab.view.columns import Array, Columns, IndexReader
from torl_lab.view.facets import Flag
from torl_lab.view.rows import Place, facets_json

MAX_ATTEMPTS: Final = 5000
_MAX_LISTED: Final = 40


def problem_history(readers: Sequence[IndexReader], name: str) -> list[dict[str, Any]]:
    """Return all attempts at a problem, by target and in the order of their steps.

    Args:
        readers: Readers of the targets.
        name: Key of the problem; or an id, of which all problems are returned.

    Raises:
        LookupError: No target has the problem, or an index is being built.
    """
    found: dict[str, dict[str, Any]] = {}
    for reader in readers:
        columns = reader.columns()
        for number, problem in reader.problems(reader.problems_matching(name, exactly=True)[:_MAX_LISTED]).items():
            rows = np.flatnonzero(columns["problem"] == number)
            if not len(rows):
                continue  # of a file that was replaced
            order = np.lexsort((columns["sample"][rows], columns["set"][rows], columns["step"][rows]))
            shown = found.setdefault(problem.key, {**asdict(problem), "attempts": []})
            shown["attempts"] += [facets_json(Place(reader, columns, int(row))) for row in rows[order][:MAX_ATTEMPTS]]
    if not found:
        raise LookupError(f"no problem {name!r} in the index")
    return list(found.values())


def changes(reader: IndexReader) -> list[dict[str, Any]]:
    """Compare the first and the last attempts at each problem, for each set that was played at two steps.

    Returns:
        For each set: the steps, the number of problems that were played twice, the mean change of their accuracies with
        its interval of 95 % over problems, and the problems that were gained and lost, the largest changes first.
    """
    columns = reader.columns()
    found = []
    for number, name in sorted(columns.sets.items(), key=lambda each: each[1]):
        rows = np.flatnonzero((columns["set"] == number) & ((columns["flags"] & Flag.DAMAGED) == 0))
        steps = columns["step"][rows]
        if len(rows) and steps.min() < steps.max():
            found.append(
                {"set": name, "steps": [int(steps.min()), int(steps.max())], **_changes(reader, columns, rows)}
            )
    return found


def _changes(reader: IndexReader, columns: Columns, rows: Array) -> dict[str, Any]:
    problems, owner = np.unique(columns["problem"][rows], return_inverse=True)
    steps, correct = columns["step"][rows], (columns["flags"][rows] & Flag.CORRECT) != 0
    first = np.full(len(problems), np.iinfo(np.int32).max)
    last = np.full(len(problems), -1)
    np.minimum.at(first, owner, steps)
    np.maximum.at(last, owner, steps)
    before = _mean_by_owner(owner, correct, steps == first[owner], len(problems))
    after = _mean_by_owner(owner, correct, steps == last[owner], len(problems))
    twice = first < last
    difference = np.where(twice, after - before, 0.0)
    order = np.argsort(-np.abs(difference), kind="stable")
    lists = {
        "gained": [index for index in order if difference[index] > 0],
        "lost": [index for index in order if difference[index] < 0],
    }
    listed = {index for members in lists.values() for index in members[:_MAX_LISTED]}
    named = reader.problems([int(problems[index]) for index in listed])
    played = difference[twice]
    return {
        "problems": int(twice.sum()),
        "before": float(before[twice].mean()) if len(played) else None,
        "after": float(after[twice].mean()) if len(played) else None,
        "half_width": half_width(played),
        "counts": {kind: len(members) for kind, members in lists.items()},
        **{
            kind: [
                {
                    "problem": problem.name,
                    "key": problem.key,
                    "before": float(before[index]),
                    "after": float(after[index]),
                    "steps": [int(first[index]), int(last[index])],
                }
                for index in members[:_MAX_LISTED]
                if (problem := named.get(int(problems[index]))) is not None  # unless the index is built again
            ]
            for kind, members in lists.items()
        },
    }


def _mean_by_owner(owner: Array, values: Array, chosen: Array, count: int) -> Array:
    totals = np.bincount(owner[chosen], values[chosen], count)
    numbers = np.bincount(owner[chosen], minlength=count)
    mean: Array = totals / np.maximum(numbers, 1)
    return mean
