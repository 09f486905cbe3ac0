"""The theme of charts, their HTML, and the charts that several pages share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from torl.run.display.series import LogFit, log_fit

# Legible on white and on black.
COLORS: Final = (
    *("#3b82f6", "#f59e0b", "#10b981", "#ef4444", "#8b5cf6", "#94a3b8"),
    *("#ec4899", "#14b8a6", "#a16207", "#64748b"),
)
GRID: Final = "rgba(128,128,128,0.18)"


def apply_theme(figure: Any, height: int = 270) -> Any:
    """Return the figure with the theme of a page: a transparent background, a legend at the top."""
    figure.update_layout(
        template="none",
        height=height,
        margin={"l": 52, "r": 12, "t": 8, "b": 36},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, sans-serif", "size": 12, "color": "#808080"},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        xaxis={"zeroline": False, "gridcolor": GRID, "ticklabelstandoff": 3},
        yaxis={"zeroline": False, "gridcolor": GRID, "exponentformat": "power", "ticklabelstandoff": 5},
    )
    return figure


def over_steps(figure: Any) -> Any:
    """Return the figure with the theme of a page and an axis of training steps."""
    apply_theme(figure).update_xaxes(title={"text": "step", "standoff": 4})
    return figure.update_layout(hovermode="x unified")


def chart_html(figure: Any, identifier: str) -> str:
    """Return the HTML of a chart for a page with plotly.js (`torl_lab.report.page.document`)."""
    import plotly.io

    html: str = plotly.io.to_html(
        figure,
        full_html=False,
        include_plotlyjs=False,
        div_id=identifier,
        config={"displaylogo": False, "displayModeBar": False, "responsive": True},
    )
    return html


# --- bars ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bar:
    """A fraction with its interval, as one bar of a series in a group."""

    series: str
    group: str
    value: float
    interval: tuple[float, float]


def bar_chart(identifier: str, bars: Sequence[Bar]) -> str:
    """Return grouped bars with intervals as HTML; series are side by side in each group."""
    import plotly.graph_objects as graph

    figure: Any = graph.Figure()
    for number, series in enumerate(dict.fromkeys(bar.series for bar in bars)):
        members = [bar for bar in bars if bar.series == series]
        figure.add_bar(
            x=[bar.group for bar in members],
            y=[bar.value for bar in members],
            name=series,
            marker={"color": COLORS[number % len(COLORS)]},
            error_y={
                "array": [bar.interval[1] - bar.value for bar in members],
                "arrayminus": [bar.value - bar.interval[0] for bar in members],
                "thickness": 1,
            },
        )
    apply_theme(figure, height=300).update_layout(barmode="group", showlegend=True, margin={"b": 48})
    figure.update_xaxes(showgrid=False)
    figure.update_yaxes(range=[0, 1.01], tickformat=".0%")
    return chart_html(figure, identifier)


# --- accuracy by the number of tool calls ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Point:
    """An accuracy with its interval, if known, for a number of tool calls."""

    calls: int
    value: float
    interval: tuple[float, float] | None = None


def fit_of(points: Sequence[Point]) -> LogFit | None:
    """Fit a + b ln(1 + N); None with fewer than three numbers of calls, because any line fits two."""
    if len({point.calls for point in points}) < 3:
        return None
    return log_fit([point.calls for point in points], [point.value for point in points])


def calls_chart(identifier: str, series: Mapping[str, Sequence[Point]]) -> str:
    """Return the accuracy by the number of tool calls, with fitted lines, as HTML."""
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
