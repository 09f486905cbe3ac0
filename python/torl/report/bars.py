"""Bars with intervals, in groups: an interactive chart for a page that has plotly.js."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torl.report.charts import COLORS


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
    import plotly.io

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
    figure.update_layout(
        template="none",
        barmode="group",
        height=300,
        margin={"l": 52, "r": 12, "t": 8, "b": 48},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, sans-serif", "size": 12, "color": "#808080"},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        showlegend=True,
        yaxis={"range": [0, 1], "tickformat": ".0%", "gridcolor": "rgba(128,128,128,0.18)"},
    )
    html: str = plotly.io.to_html(
        figure,
        full_html=False,
        include_plotlyjs=False,
        div_id=identifier,
        config={"displaylogo": False, "displayModeBar": False, "responsive": True},
    )
    return html
