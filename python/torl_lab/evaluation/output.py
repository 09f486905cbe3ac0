"""The output files of an evaluation: table.md, table.tex, results.json and page.html."""

import json
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from torl.run.records.files import atomic_write
from torl_lab.evaluation.estimates import Estimate, overall
from torl_lab.evaluation.layout import Table, latex, markdown
from torl_lab.evaluation.results import Variant, difference, model_differences, tool_differences
from torl_lab.report.figures import Bar, Point, bar_chart, calls_chart
from torl_lab.report.page import document
from torl_lab.report.style import table_html


def write_all(output: Path, variants: Sequence[Variant], tables: Sequence[Table], baseline: str | None = None) -> None:
    """Write table.md, table.tex, results.json and page.html.

    Raises:
        RecordError: A file cannot be written.
    """
    contents = {
        "table.md": "\n".join(markdown(table) for table in tables),
        "table.tex": "\n".join(latex(table) for table in tables),
        "results.json": json.dumps(results(variants, baseline), indent=1) + "\n",
        "page.html": page(output.resolve().name, variants, tables),
    }
    for name, text in contents.items():
        with atomic_write(output / name) as file:
            file.write(text.encode("utf-8"))


def results(variants: Sequence[Variant], baseline: str | None = None) -> dict[str, Any]:
    """Return all numbers and their confidence intervals as plain JSON. Accuracies are between 0 and 1."""
    measured = [
        {
            **_key(variant, measure),
            "problems": {name: len(values_P) for name, values_P in sets.items()},
            "interval": "samples" if variant.has_sample_intervals(measure) else "problems",
            "sets": _encoded(variant.estimates(measure)),
            "code": {name: dict(use.means) for name, use in variant.code.get(measure, {}).items()},
        }
        for variant in variants
        for measure, sets in variant.measures.items()
    ]
    return {
        "accuracy": measured,
        "tool_difference": _differences(tool_differences(variants)),
        "baseline_difference": _differences(model_differences(variants, baseline)),
    }


def _differences(pairs: Iterable[tuple[Variant, Variant]]) -> list[dict[str, Any]]:
    return [
        {**_key(variant, measure), "sets": _encoded(difference(variant, other, measure))}
        for variant, other in pairs
        for measure in variant.measures
    ]


def _key(variant: Variant, measure: str) -> dict[str, Any]:
    return {"model": variant.model, "max_tool_calls": variant.calls, "measure": measure}


def _encoded(found: dict[str, Estimate]) -> dict[str, Any]:
    return {name: {"value": each.value, "interval": list(each.interval)} for name, each in found.items()}


def page(title: str, variants: Sequence[Variant], tables: Sequence[Table]) -> str:
    """Build an HTML page that works offline.

    Args:
        title: Title of the page.
        variants: Results to chart, with one chart for each measure.
        tables: Tables below the charts.
    """
    measures = dict.fromkeys(measure for variant in variants for measure in variant.measures)
    charts = "".join(
        f'<section class="chart"><h3>{escape(measure)}</h3><p>Accuracy by set, with 95 % confidence intervals.</p>'
        f"{bar_chart(f'chart-{number}', _bars(variants, measure))}</section>"
        for number, measure in enumerate(measures)
    )
    charts += "".join(_calls_section(variants, measure, f"calls-{number}") for number, measure in enumerate(measures))
    body = f'<h1>{escape(title)}</h1><div class="charts">{charts}</div>' + "".join(map(_table, tables))
    return document(title, body)


def _bars(variants: Sequence[Variant], measure: str) -> list[Bar]:
    return [
        Bar(variant.label, name, each.value, each.interval)
        for variant in variants
        if measure in variant.measures
        for name, each in variant.estimates(measure).items()
    ]


def _calls_section(variants: Sequence[Variant], measure: str, identifier: str) -> str:
    """Build the chart of accuracy by N; empty if all variants have the same N."""
    series = _by_calls(variants, measure)
    if len({point.calls for points in series.values() for point in points}) < 2:
        return ""
    note = (
        "Mean over sets by the maximum number of tool calls N, with 95 % confidence intervals. Dashed: fit of "
        "a + b ln(1 + N), with at least three values of N."
    )
    return (
        f'<section class="chart"><h3>{escape(measure)} by tool calls</h3><p>{escape(note)}</p>'
        f"{calls_chart(identifier, series)}</section>"
    )


def _by_calls(variants: Sequence[Variant], measure: str) -> dict[str, list[Point]]:
    """Return the means over sets of each model, sorted by N."""
    points: dict[str, list[Point]] = {}
    for variant in sorted(variants, key=lambda variant: variant.calls):
        if measure in variant.measures:
            mean = overall(variant.estimates(measure))
            points.setdefault(variant.model, []).append(Point(variant.calls, mean.value, mean.interval))
    return points


def _table(table: Table) -> str:
    notes = " ".join(f"{note}." for note in table.notes)
    return f"<h2>{escape(table.title)}</h2>{table_html(table.columns, table.rows, notes)}"
