"""Figures and tables of a report, as the viewer's page draws them (`view/static/report.js`)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torl.run.display.series import LogFit, log_fit


@dataclass(frozen=True, slots=True)
class Bar:
    """A fraction with its interval, as one bar of a series in a group."""

    series: str
    group: str
    value: float
    interval: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Point:
    """An accuracy with its interval, if known, for a number of tool calls."""

    calls: int
    value: float
    interval: tuple[float, float] | None = None


def table(title: str, head: Sequence[str], rows: Iterable[Iterable[Any]], note: str = "") -> dict[str, Any]:
    """Return a table. A cell is a text, or a text with "better" or "worse"."""
    return {"title": title, "head": list(head), "rows": [list(row) for row in rows], "note": note}


def bar_chart(title: str, note: str, bars: Sequence[Bar]) -> dict[str, Any]:
    """Return bars with their intervals, by group."""
    groups = {
        group: [[bar.series, bar.value, *bar.interval] for bar in bars if bar.group == group]
        for group in dict.fromkeys(bar.group for bar in bars)
    }
    return {"title": title, "note": note, "groups": groups}


def fit_of(points: Sequence[Point]) -> LogFit | None:
    """Fit a + b ln(1 + N); None with fewer than three numbers of calls, because any line fits two."""
    if len({point.calls for point in points}) < 3:
        return None
    return log_fit([point.calls for point in points], [point.value for point in points])


def calls_chart(title: str, note: str, series: Mapping[str, Sequence[Point]]) -> dict[str, Any] | None:
    """Return the accuracy by the number of tool calls, with fitted lines; None if all points have the same number."""
    if len({point.calls for points in series.values() for point in points}) < 2:
        return None
    lines = []
    for name, points in series.items():
        calls, fit = [point.calls for point in points], fit_of(points)
        bounds = [point.interval or (point.value, point.value) for point in points]
        values = [point.value for point in points]
        lines.append(_line(name, 0, calls, values, bounds if any(point.interval for point in points) else []))
        if fit is not None:
            between = [calls[0] + (calls[-1] - calls[0]) * part / 50 for part in range(51)]
            lines.append(_line(name, 1, between, [fit.at(each) for each in between]))
    return {"title": title, "note": note, "scale": "percent", "axis": "N", "lines": lines}


def _line(
    series: str,
    line: int,
    calls: Sequence[float],
    values: Sequence[float],
    intervals: Sequence[tuple[float, float]] = (),
) -> dict[str, Any]:
    """Return the points of a series, or its fit as the second line."""
    found = {"run": series, "line": line, "label": "fit" if line else "", "steps": calls, "values": values}
    return found | {"intervals": intervals, "evaluated": line == 0}
