"""The page of an evaluation: one HTML file with its charts and tables, that works offline."""

from collections.abc import Sequence
from html import escape

from torl.evaluation.results import Arm, estimates
from torl.evaluation.tables import Table
from torl.report.bars import Bar, bar_chart
from torl.report.page import document


def page(title: str, arms: Sequence[Arm], tables: Sequence[Table]) -> str:
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
    body = f'<h1>{escape(title)}</h1><div class="charts">{charts}</div>' + "".join(map(_table, tables))
    return document(title, body)


def _bars(arms: Sequence[Arm], measure: str) -> list[Bar]:
    return [
        Bar(arm.label, name, each.value, each.interval)
        for arm in arms
        if measure in arm.measures
        for name, each in estimates(arm.measures[measure]).items()
    ]


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
    rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows)
    notes = "".join(f'<p class="note">{escape(note)}.</p>' for note in table.notes)
    return (
        f'<h2>{escape(table.title)}</h2><div class="table"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{notes}"
    )
