"""Results as HTML for notebooks: tables and small charts without scripts."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

from torl.base.types import ScoredGroup

_MAX_GROUPS: Final = 20
_MAX_CHARACTERS: Final = 160
_WIDTH, _HEIGHT = 260, 60
_COLOR: Final = "#3b82f6"


def metrics_html(metrics: Mapping[str, float | None]) -> str:
    """Return a table of metrics, without the ones that are not finite, which records have as null."""
    finite = {name: value for name, value in metrics.items() if value is not None and math.isfinite(value)}
    return _table(("metric", "value"), [(name, f"{value:.4g}") for name, value in finite.items()])


def groups_html(groups: Sequence[ScoredGroup]) -> str:
    """Return a table of groups: the question, the accuracy, the tool calls and the first response."""
    rows = []
    for group in groups[:_MAX_GROUPS]:
        calls = sum(len(member.trajectory.tool_calls) for member in group.members)
        first = group.members[0].trajectory.text
        problem = group.prompt.problem
        rows.append((_short(problem.question), f"{group.accuracy:.0%}", str(calls), _short(first)))
    note = f"<p>{len(groups) - _MAX_GROUPS} more problems</p>" if len(groups) > _MAX_GROUPS else ""
    return _table(("question", "correct", "calls", "first response"), rows) + note


def charts_html(curves: Mapping[str, tuple[Sequence[int], Sequence[float]]]) -> str:
    """Return a small chart of each curve, given as (steps, values) by metric name."""
    return "".join(_chart(name, steps, values) for name, (steps, values) in curves.items() if len(steps) > 1)


def _chart(name: str, steps: Sequence[int], values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    scale = (high - low) or 1.0
    points = " ".join(
        f"{_WIDTH * (step - steps[0]) / (steps[-1] - steps[0]):.1f},{_HEIGHT * (1 - (value - low) / scale):.1f}"
        for step, value in zip(steps, values, strict=True)
    )
    return (
        f'<figure style="display:inline-block;margin:4px 12px"><svg width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="-2 -2 {_WIDTH + 4} {_HEIGHT + 4}"><polyline points="{points}" fill="none" stroke="{_COLOR}" '
        f'stroke-width="2"/></svg><figcaption>{escape(name)}: {values[0]:.3g} to {values[-1]:.3g}</figcaption></figure>'
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"


def _short(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}..."
