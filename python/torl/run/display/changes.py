"""The change of an accuracy between two evaluations, with its interval over problems."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from torl.base.errors import RecordError
from torl.run.records.files import evaluation_files, step_of_file
from torl.run.records.reading import read_rows

_QUANTILE: Final = 1.96  # of the normal distribution, for 95 %


@dataclass(frozen=True, slots=True)
class AccuracyChange:
    """The accuracies of the first and the last evaluation, on the problems that both have.

    Attributes:
        before: Mean over problems of the first evaluation.
        after: Mean over problems of the last.
        half_width: Half of the width of the interval of 95 % of the mean change, over problems; None for one problem.
    """

    before: float
    after: float
    half_width: float | None


def accuracy_changes(run_directory: Path) -> dict[str, AccuracyChange]:
    """Return the change of each evaluation file's label, between its first and its last step.

    Labels whose files are damaged are left out: the report of a running run is written often.
    """
    found = {}
    for label, files in evaluation_files(run_directory).items():
        if len(files) < 2 or step_of_file(files[0]) == step_of_file(files[-1]):
            continue
        try:
            before, after = accuracy_by_problem(files[0]), accuracy_by_problem(files[-1])
        except (RecordError, KeyError):
            continue
        both = [problem for problem in before if problem in after]
        if both:
            found[label] = _change([(before[problem], after[problem]) for problem in both])
    return found


def _change(pairs: list[tuple[float, float]]) -> AccuracyChange:
    changes = [after - before for before, after in pairs]
    return AccuracyChange(fmean(before for before, _ in pairs), fmean(after for _, after in pairs), half_width(changes))


def half_width(values: Sequence[float] | NDArray[Any]) -> float | None:
    """Return half of the width of the interval of 95 % of a mean of accuracies, or of their differences.

    By the normal distribution, or, if all values are equal, the width of Wilson's interval of a proportion of 0. None
    for fewer than two values.
    """
    numbers = np.asarray(values, np.float64)
    if (count := len(numbers)) < 2:
        return None
    if numbers.min() == numbers.max():
        return _QUANTILE**2 / (count + _QUANTILE**2)
    return float(_QUANTILE * numbers.std(ddof=1) / sqrt(count))


def accuracy_by_problem(path: Path) -> Mapping[str, float]:
    """Return the accuracy of each problem of an evaluation file, by its id.

    Raises:
        RecordError: The file is damaged.
    """
    correct: dict[str, list[bool]] = {}
    for row in read_rows(path):
        correct.setdefault(row["problem"], []).append(bool(row["correct"]))
    return {problem: fmean(values) for problem, values in correct.items()}
