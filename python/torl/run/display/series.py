"""Metrics over the steps of a run: values, moving means, rank correlations and fits."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import StatisticsError, correlation, linear_regression
from typing import Any, TypeAlias

from torl.run.records import metric_names as names

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
