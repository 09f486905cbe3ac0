"""A metric over the steps of a run, and what is said of it: smoothed, ranked, fitted."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import StatisticsError, correlation, linear_regression
from typing import Any, TypeAlias

Row: TypeAlias = Mapping[str, Any]
"""A row of `metrics.jsonl`."""


def values_of(rows: Sequence[Row], name: str) -> tuple[list[int], list[float]]:
    """Steps and values of a metric, where it was measured."""
    measured = [(row["step"], row[name]) for row in rows if row.get(name) is not None]
    return [step for step, _ in measured], [value for _, value in measured]


def means_of(rows: Sequence[Row], metrics: Sequence[str]) -> tuple[list[int], list[float]]:
    """Steps at which all of these metrics were measured, and the mean of their last values there."""
    by_metric = [dict(zip(*values_of(rows, name), strict=True)) for name in metrics]
    steps = [step for step in by_metric[0] if all(step in values for values in by_metric)]
    return steps, [sum(values[step] for values in by_metric) / len(by_metric) for step in steps]


def moving_mean(values: Sequence[float], window: int) -> list[float]:
    """The mean of each value and those before it, `window` in all (fewer at the start)."""
    means = []
    for end in range(1, len(values) + 1):
        piece = values[max(0, end - window) : end]
        means.append(sum(piece) / len(piece))
    return means


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Spearman's: Pearson's correlation of the ranks, equal values sharing the mean of theirs.

    None where it is not defined: fewer than two points, or all values of a side equal.
    """
    return _correlation(_ranks(x), _ranks(y))


@dataclass(frozen=True, slots=True)
class LogFit:
    """The least-squares line y = intercept + slope ln(1 + x), and the share of the variance that it explains."""

    intercept: float
    slope: float
    explained: float

    def at(self, x: float) -> float:
        """The value of the line."""
        return self.intercept + self.slope * math.log1p(x)

    @property
    def per_doubling(self) -> float:
        """By how much y grows where 1 + x doubles."""
        return self.slope * math.log(2)


def log_fit(x: Sequence[float], y: Sequence[float]) -> LogFit | None:
    """Fitted to points with x of 0 and more; None with fewer than three points, or none that differ in x or in y."""
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
    """1 for the smallest; equal values have the mean of the ranks that they take."""
    ordered = sorted(values)
    first = {value: rank for rank, value in reversed(list(enumerate(ordered, start=1)))}
    last = {value: rank for rank, value in enumerate(ordered, start=1)}
    return [(first[value] + last[value]) / 2 for value in values]
