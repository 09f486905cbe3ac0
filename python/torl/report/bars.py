"""Bars with intervals, in groups: an interactive chart for a page that has plotly.js."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torl.report.figures import COLORS, apply_theme, chart_html


@dataclass(frozen=True, slots=True)
class Bar:
    """A share between 0 and 1 with its interval: one of a series, in a group."""

    series: str
    group: str
    value: float
    interval: tuple[float, float]


def bar_chart(identifier: str, bars: Sequence[Bar]) -> str:
    """The chart as HTML; series stand side by side in each group."""
    import plotly.graph_objects as graph

    figure: Any = graph.Figure()
    for number, series in enumerate(dict.fromkeys(bar.series for bar in bars)):
        own = [bar for bar in bars if bar.series == series]
        figure.add_bar(
            x=[bar.group for bar in own],
            y=[bar.value for bar in own],
            name=series,
            marker={"color": COLORS[number % len(COLORS)]},
            error_y={
                "array": [bar.interval[1] - bar.value for bar in own],
                "arrayminus": [bar.value - bar.interval[0] for bar in own],
                "thickness": 1,
            },
        )
    apply_theme(figure, height=300).update_layout(barmode="group", showlegend=True, margin={"b": 48})
    figure.update_xaxes(showgrid=False)
    figure.update_yaxes(range=[0, 1.01], tickformat=".0%")
    return chart_html(figure, identifier)
