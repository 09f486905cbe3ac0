"""The page of an evaluation: one HTML file with its charts and tables, that works offline."""

from collections.abc import Sequence
from html import escape

from torl.apps.evaluation.results import Variant, estimates, overall
from torl.apps.evaluation.tables import Table
from torl.report.figures import Bar, Point, bar_chart, calls_chart
from torl.report.page import document
from torl.report.style import table_html


def page(title: str, arms: Sequence[Variant], tables: Sequence[Table]) -> str:
    """The whole page.

    Args:
        title: of the page.
        arms: what is charted, a chart for each measure.
        tables: what stands below.
    """
    measures = dict.fromkeys(measure for arm in arms for measure in arm.measures)
    charts = "".join(
        f'<section class="chart"><h3>{escape(measure)}</h3><p>Accuracy by set, with 95 % intervals.</p>'
        f"{bar_chart(f'chart-{number}', _bars(arms, measure))}</section>"
        for number, measure in enumerate(measures)
    )
    charts += "".join(_calls_section(arms, measure, f"calls-{number}") for number, measure in enumerate(measures))
    body = f'<h1>{escape(title)}</h1><div class="charts">{charts}</div>' + "".join(map(_table, tables))
    return document(title, body)


def _bars(arms: Sequence[Variant], measure: str) -> list[Bar]:
    return [
        Bar(arm.label, name, each.value, each.interval)
        for arm in arms
        if measure in arm.measures
        for name, each in estimates(arm.measures[measure]).items()
    ]


def _calls_section(arms: Sequence[Variant], measure: str, identifier: str) -> str:
    """Nothing where all arms have the same N."""
    series = _by_calls(arms, measure)
    if len({point.calls for points in series.values() for point in points}) < 2:
        return ""
    note = (
        "Mean over sets, by the calls that a response may make, with 95 % intervals. Dashed: a + b ln(1 + N), where "
        "three numbers of calls differ."
    )
    return (
        f'<section class="chart"><h3>{escape(measure)} by tool calls</h3><p>{escape(note)}</p>'
        f"{calls_chart(identifier, series)}</section>"
    )


def _by_calls(arms: Sequence[Variant], measure: str) -> dict[str, list[Point]]:
    """The mean over sets of each model, in the order of N."""
    points: dict[str, list[Point]] = {}
    for arm in sorted(arms, key=lambda arm: arm.calls):
        if measure in arm.measures:
            told = overall(estimates(arm.measures[measure]))
            points.setdefault(arm.model, []).append(Point(arm.calls, told.value, told.interval))
    return points


def _table(table: Table) -> str:
    notes = " ".join(f"{note}." for note in table.notes)
    return f"<h2>{escape(table.title)}</h2>{table_html(table.columns, table.rows, notes)}"
