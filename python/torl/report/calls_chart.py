"""Accuracy by the number of tool calls that a response may make, with a line fitted to each series."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torl.report.figures import COLORS, apply_theme, chart_html
from torl.report.series import LogFit, log_fit


@dataclass(frozen=True, slots=True)
class Point:
    """N and an accuracy between 0 and 1, with its interval where one is known."""

    calls: int
    value: float
    interval: tuple[float, float] | None = None


def fit_of(points: Sequence[Point]) -> LogFit | None:
    """a + b ln(1 + N); None where fewer than three numbers of calls differ: two fit any line."""
    if len({point.calls for point in points}) < 3:
        return None
    return log_fit([point.calls for point in points], [point.value for point in points])


def calls_chart(identifier: str, series: Mapping[str, Sequence[Point]]) -> str:
    """The chart as HTML, points in the order of N."""
    import plotly.graph_objects as graph

    figure: Any = graph.Figure()
    for number, (name, points) in enumerate(series.items()):
        color = COLORS[number % len(COLORS)]
        calls, fit = [point.calls for point in points], fit_of(points)
        bounds = [point.interval or (point.value, point.value) for point in points]
        figure.add_scatter(
            x=calls,
            y=[point.value for point in points],
            name=name,
            mode="markers" if fit else "lines+markers",
            line={"width": 1.5, "color": color},
            marker={"size": 9, "color": color},
            error_y={
                "array": [high - point.value for point, (_, high) in zip(points, bounds, strict=True)],
                "arrayminus": [point.value - low for point, (low, _) in zip(points, bounds, strict=True)],
                "thickness": 1,
                "visible": any(point.interval for point in points),
            },
        )
        if fit is not None:
            between = [calls[0] + (calls[-1] - calls[0]) * part / 50 for part in range(51)]
            figure.add_scatter(
                x=between,
                y=[fit.at(each) for each in between],
                name=f"{name}, fitted",
                mode="lines",
                line={"dash": "dash", "width": 1.5, "color": color},
                showlegend=False,
                hoverinfo="skip",
            )
    apply_theme(figure).update_layout(showlegend=True)
    everywhere = sorted({point.calls for points in series.values() for point in points})
    figure.update_xaxes(title={"text": "N", "standoff": 4}, tickvals=everywhere)
    figure.update_yaxes(tickformat=".0%", rangemode="tozero")
    return chart_html(figure, identifier)
