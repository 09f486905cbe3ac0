"""Panels as interactive charts: each line of each run, with its moving mean."""

from collections.abc import Sequence
from html import escape
from typing import Any, Final

from torl.run.display.series import moving_mean
from torl_lab.report.figures import COLORS, chart_html, over_steps
from torl_lab.view.panels import Curve, Panel, RunRecords, Scale, curves_of

DASHES: Final = {"solid": "solid", "dot": "dotted", "dash": "dashed", "dashdot": "dashed and dotted"}
"""Styles of the lines of a panel, where the colors are runs, with their names in notes."""


def charts_html(panels: Sequence[Panel], runs: Sequence[RunRecords], window: int) -> str:
    """Return the charts of all panels with data other than 0, as HTML for a page with plotly.js; empty without any.

    Args:
        panels: Panels.
        runs: Runs in the order of their colors. The colors of a single run are its lines.
        window: Number of steps that training curves are averaged over.
    """
    sections, zero = [], []
    for number, panel in enumerate(panels):
        curves = list(curves_of(panel, runs))
        if curves and not any(any(curve.values) for curve in curves):
            zero.append(panel.title)
        elif (figure := _figure(panel, curves, runs, window)) is not None:
            chart, note = chart_html(figure, f"chart-{number}"), _note(panel, curves, runs)
            sections.append(
                f'<section class="chart"><h3>{escape(panel.title)}</h3><p>{escape(note)}</p>{chart}</section>'
            )
    charts = f'<div class="charts">{"".join(sections)}</div>' if sections else ""
    return charts + (f'<p class="dim">0 in all steps: {escape(", ".join(zero))}</p>' if zero else "")


def _note(panel: Panel, curves: Sequence[Curve], runs: Sequence[RunRecords]) -> str:
    """Return the note of a panel, with the meaning of its dashes: the legend has only the colors."""
    labels = {curve.line: curve.label for curve in curves} if len(runs) > 1 else {}
    styles = "; ".join(f"{DASHES[_dash(line)]}: {label}" for line, label in sorted(labels.items()))
    explained = f" {styles.capitalize()}." if len(labels) > 1 else ""
    return f"{panel.note}{explained}{' Dashed: before training.' if any(map(_has_base, curves)) else ''}"


def _dash(line: int) -> str:
    return list(DASHES)[line % len(DASHES)]


def _has_base(curve: Curve) -> bool:
    """Whether a curve is read against its value before training."""
    return curve.evaluated and curve.line == 0 and curve.steps[0] == 0 and len(curve.steps) > 1


def _figure(panel: Panel, curves: Sequence[Curve], runs: Sequence[RunRecords], window: int) -> Any:
    import plotly.graph_objects as graph

    figure: Any = graph.Figure()
    for curve in curves:
        _add(figure, panel, curve, runs, window)
    if not figure.data:
        return None
    over_steps(figure).update_layout(showlegend=len(runs) > 1 or len(curves) > 1)
    figure.update_yaxes(rangemode="tozero")
    if panel.scale is Scale.FRACTION:
        figure.update_yaxes(range=[-0.02, 1.02])
    if panel.scale is Scale.PERCENT:
        figure.update_yaxes(tickformat=".0%")
    if panel.scale is Scale.LOGARITHMIC:
        figure.update_yaxes(type="log", dtick=1)
    return figure


def _add(figure: Any, panel: Panel, curve: Curve, runs: Sequence[RunRecords], window: int) -> None:
    """Add a curve: the moving mean above the faint values of training, or the marked values of evaluations."""
    several = len(runs) > 1
    steps, values = curve.steps, curve.values
    if panel.scale is Scale.LOGARITHMIC:
        positive = [(step, value) for step, value in zip(steps, values, strict=True) if value > 0]
        steps, values = [step for step, _ in positive], [value for _, value in positive]
    if not steps:
        return
    color = COLORS[(curve.run if several else curve.line) % len(COLORS)]
    label = runs[curve.run].label + (f", {curve.label}" if curve.line else "") if several else curve.label
    if panel.scale is Scale.STACKED and not several:
        line = {"width": 0.5, "color": color}
        figure.add_scatter(x=steps, y=values, name=label, mode="lines", line=line, stackgroup="one")
        return
    unlisted = {"mode": "lines", "showlegend": False, "hoverinfo": "skip"}
    smooth = window > 1 and not curve.evaluated and panel.scale is not Scale.LOGARITHMIC
    if smooth:
        figure.add_scatter(x=steps, y=values, name=label, line={"width": 1, "color": color}, opacity=0.25, **unlisted)
    if _has_base(curve):
        line = {"width": 1, "color": color, "dash": "dash"}
        base = {"x": [0, steps[-1]], "y": [values[0]] * 2, "name": f"{label}, before training"}
        figure.add_scatter(**base, line=line, opacity=0.6, **unlisted)
    # Earlier runs have wider lines, so that equal runs do not hide each other.
    width = 2 if several and curve.line else min(2.5 + 2 * (len(runs) - 1 - curve.run), 8)
    figure.add_scatter(
        x=steps,
        y=moving_mean(values, window) if smooth else values,
        name=label,
        mode="lines+markers" if curve.evaluated or len(steps) == 1 else "lines",
        line={"width": width, "color": color, "dash": _dash(curve.line) if several else "solid"},
        marker={"size": 7},
        showlegend=not (several and curve.line),
    )
