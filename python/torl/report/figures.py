"""The frame that every chart of a page has, and the HTML that it becomes."""

from typing import Any, Final

# Read well on white and on black.
COLORS: Final = (
    *("#3b82f6", "#f59e0b", "#10b981", "#ef4444", "#8b5cf6", "#94a3b8"),
    *("#ec4899", "#14b8a6", "#a16207", "#64748b"),
)
GRID: Final = "rgba(128,128,128,0.18)"


def apply_theme(figure: Any, height: int = 270) -> Any:
    """The same figure with the looks of a page: no paper of its own, a legend above."""
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
    """The same figure, framed, with the steps of training below it."""
    apply_theme(figure).update_xaxes(title={"text": "step", "standoff": 4})
    return figure.update_layout(hovermode="x unified")


def chart_html(figure: Any, identifier: str) -> str:
    """The chart for a page that has plotly.js (`torl.report.page.document`)."""
    import plotly.io

    html: str = plotly.io.to_html(
        figure,
        full_html=False,
        include_plotlyjs=False,
        div_id=identifier,
        config={"displaylogo": False, "displayModeBar": False, "responsive": True},
    )
    return html
