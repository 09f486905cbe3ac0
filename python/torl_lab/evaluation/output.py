"""The tables of an evaluation as Markdown and LaTeX, and its files: table.md, table.tex, results.json and page.html."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from torl.run.records.files import atomic_write
from torl_lab.evaluation.estimates import Estimate
from torl_lab.evaluation.results import Variant, difference, model_differences, tool_differences
from torl_lab.report.figures import Bar, Point, bar_chart, calls_chart, table
from torl_lab.report.page import write_page


@dataclass(frozen=True, slots=True)
class Table:
    """A table with notes below it. The first cell of a row is its label."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def estimate_cell(estimate: Estimate | None, number: str = ".1f", scale: float = 100) -> str:
    """Return an estimate, in percent by default, with its interval in brackets; "-" for none."""
    if estimate is None:
        return "-"
    value, low, high = (f"{scale * each:{number}}" for each in (estimate.value, *estimate.interval))
    return f"{value} [{low}, {high}]"


def markdown(table: Table) -> str:
    """Format a table as GitHub Markdown under its title."""
    lines = [f"**{table.title}**", "", _line(table.columns), _line(["---"] + ["---:"] * (len(table.columns) - 1))]
    lines += [_line(row) for row in table.rows]
    return "\n".join([*lines, *(f"\n{note}." for note in table.notes)]) + "\n"


def latex(table: Table) -> str:
    """Format a table as a LaTeX `table` with booktabs rules."""
    rows = [" & ".join(map(_escaped, row)) + r" \\" for row in table.rows]
    head = " & ".join(map(_escaped, table.columns)) + r" \\"
    columns = "l" + "r" * (len(table.columns) - 1)
    caption = ". ".join([table.title, *table.notes])
    begin = [r"\begin{table}", r"\centering", rf"\begin{{tabular}}{{{columns}}}"]
    end = [r"\end{tabular}", rf"\caption{{{_escaped(caption)}.}}", r"\end{table}", ""]
    return "\n".join([*begin, r"\toprule", head, r"\midrule", *rows, r"\bottomrule", *end])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _escaped(text: str) -> str:
    for character in "&%$#_{}":
        text = text.replace(character, f"\\{character}")
    return text


_BY_CALLS: Final = (
    "Mean over sets by the maximum number of tool calls N, with 95 % confidence intervals. Fitted: a + b ln(1 + N), "
    "with at least three values of N."
)


def write_all(output: Path, variants: Sequence[Variant], tables: Sequence[Table], baseline: str | None = None) -> None:
    """Write table.md, table.tex, results.json and page.html. Raises the errors of `write_tables`."""
    write_tables(output, tables, results(variants, baseline))
    write_page(output / "page.html", report(output.resolve().name, variants, tables))


def write_tables(output: Path, tables: Sequence[Table], numbers: object) -> None:
    """Write table.md, table.tex, and numbers as results.json.

    Raises:
        RecordError: A file cannot be written.
    """
    contents = {
        "table.md": "\n".join(map(markdown, tables)),
        "table.tex": "\n".join(map(latex, tables)),
        "results.json": json.dumps(numbers, indent=1) + "\n",
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


def report(title: str, variants: Sequence[Variant], tables: Sequence[Table]) -> dict[str, Any]:
    """Return the content of the page: charts of each measure, then the tables."""
    measures = dict.fromkeys(measure for variant in variants for measure in variant.measures)
    note = "Accuracy by set, with 95 % confidence intervals."
    figures = (calls_chart(f"{each} by tool calls", _BY_CALLS, _by_calls(variants, each)) for each in measures)
    return {
        "title": title,
        "bars": [bar_chart(measure, note, _bars(variants, measure)) for measure in measures],
        "figures": [figure for figure in figures if figure is not None],
        "tables": [
            table(each.title, each.columns, each.rows, " ".join(f"{note}." for note in each.notes)) for each in tables
        ],
    }


def _bars(variants: Sequence[Variant], measure: str) -> list[Bar]:
    return [
        Bar(variant.label, name, each.value, each.interval)
        for variant in variants
        if measure in variant.measures
        for name, each in variant.estimates(measure).items()
    ]


def _by_calls(variants: Sequence[Variant], measure: str) -> dict[str, list[Point]]:
    """Return the means over sets of each model, sorted by N."""
    points: dict[str, list[Point]] = {}
    for variant in sorted(variants, key=lambda variant: variant.calls):
        if measure in variant.measures:
            *_, mean = variant.estimates(measure).values()  # the average is the last one
            points.setdefault(variant.model, []).append(Point(variant.calls, mean.value, mean.interval))
    return points
