"""Metrics over the steps of a run: values, rank correlations, fits, and changes of accuracy with their intervals."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import StatisticsError, correlation, fmean, linear_regression
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from torl.base.errors import RecordError
from torl.run.records import metric_names as names
from torl.run.records.files import evaluation_files, step_of_file
from torl.run.records.reading import read_rows

Row: TypeAlias = Mapping[str, Any]
"""A row of `metrics.jsonl`."""


def values_of(rows: Sequence[Row], name: str) -> tuple[list[int], list[float]]:
    """Return the steps and values of a metric, over the rows that have it."""
    measured = [(row["step"], row[name]) for row in rows if row.get(name) is not None]
    return [step for step, _ in measured], [value for _, value in measured]


def evaluation_sets(rows: Sequence[Row]) -> list[str]:
    """Return the names of the evaluation sets, in the order of their first metrics."""
    parts = (names.split_evaluation(name) for row in rows for name in row)
    return list(dict.fromkeys(part[0] for part in parts if part is not None))


def means_of(rows: Sequence[Row], metrics: Sequence[str]) -> tuple[list[int], list[float]]:
    """Return the steps at which all of these metrics were measured, and their means there."""
    by_metric = [dict(zip(*values_of(rows, name), strict=True)) for name in metrics]
    steps = [step for step in by_metric[0] if all(step in values for values in by_metric)]
    return steps, [sum(values[step] for values in by_metric) / len(by_metric) for step in steps]


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Return Spearman's rank correlation, with mean ranks for ties; None for constant values or fewer than two."""
    return _correlation(_ranks(x), _ranks(y))


@dataclass(frozen=True, slots=True)
class LogFit:
    """The least-squares line y = intercept + slope ln(1 + x), with the explained fraction of the variance."""

    intercept: float
    slope: float
    explained: float

    def at(self, x: float) -> float:
        """Return the value of the line."""
        return self.intercept + self.slope * math.log1p(x)

    @property
    def per_doubling(self) -> float:
        """The growth of y when 1 + x doubles."""
        return self.slope * math.log(2)


def log_fit(x: Sequence[float], y: Sequence[float]) -> LogFit | None:
    """Fit a line to points with x >= 0; None for fewer than three points or constant values."""
    logs = [math.log1p(each) for each in x]
    found = _correlation(logs, y) if len(logs) > 2 else None
    if found is None:
        return None
    slope, intercept = linear_regression(logs, y)
    return LogFit(intercept, slope, found * found)


def _correlation(x: Sequence[float], y: Sequence[float]) -> float | None:
    try:
        return correlation(x, y)
    except StatisticsError:
        return None


def _ranks(values: Sequence[float]) -> list[float]:
    """Return the ranks, from 1 for the smallest value; ties have their mean rank."""
    ordered = sorted(values)
    first = {value: rank for rank, value in reversed(list(enumerate(ordered, start=1)))}
    last = {value: rank for rank, value in enumerate(ordered, start=1)}
    return [(first[value] + last[value]) / 2 for value in values]


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
