"""The tables of an evaluation: accuracies in percent with 95 % confidence intervals, and the rows of a paper."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torl.apps.evaluation.papers import PAPERS, PaperRow
from torl.apps.evaluation.results import AVERAGE, Estimate, Variant, difference, estimates, overall, tool_differences


@dataclass(frozen=True, slots=True)
class Table:
    """A table with notes below it. The first cell of a row is its label."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def all_tables(variants: Sequence[Variant], paper: str | None = None, notes: Sequence[str] = ()) -> list[Table]:
    """Build all tables that have rows.

    Args:
        variants: Results of the evaluation.
        paper: Name in `PAPERS`. Its rows with a set of the evaluation, and the differences from them, are included.
        notes: Notes on the problem sets.
    """
    tables = []
    for measure in _measures(variants):
        measured = [variant for variant in variants if measure in variant.measures]
        tables.append(_accuracies(measured, measure, paper, notes))
        tables += _differences(measured, measure)
        tables += _grid(measured, measure)
        tables += _against_paper(measured, measure, paper)
    return tables


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


def _measures(variants: Sequence[Variant]) -> list[str]:
    """Return all measures, in the order of the results."""
    return list(dict.fromkeys(measure for variant in variants for measure in variant.measures))


def _columns(variants: Sequence[Variant], measure: str) -> list[str]:
    names = list(dict.fromkeys(name for variant in variants for name in variant.measures[measure]))
    return [*names, AVERAGE] if len(names) > 1 else names


def _accuracies(variants: Sequence[Variant], measure: str, paper: str | None, set_notes: Sequence[str]) -> Table:
    columns = _columns(variants, measure)
    rows = [_row(variant.label, estimates(variant.measures[measure]), columns) for variant in variants]
    printed = [
        row
        for row in PAPERS.get(paper or "", ())
        if row.measure == measure and not row.values.keys().isdisjoint(columns)
    ]
    rows += [_printed(row, columns) for row in printed]
    sizes = {name: len(values_P) for variant in variants for name, values_P in variant.measures[measure].items()}
    problems = ", ".join(f"{size} in {name}" for name, size in sizes.items())
    notes = [f"Problems: {problems}; 95 % confidence intervals over problems in brackets"]
    notes += set_notes
    notes += [row.note for row in printed if row.note is not None and _same_sets(row, columns)]
    if paper is not None and not printed:
        notes.append(f"The paper {paper!r} has no {measure} on any of these sets")
    return Table(f"Accuracy, {measure}, %", ("model", *columns), tuple(rows), tuple(notes))


def _differences(variants: Sequence[Variant], measure: str) -> list[Table]:
    columns = _columns(variants, measure)
    rows = [
        _row(variant.label, difference(variant, without, measure), columns, signed=True)
        for variant, without in tool_differences(variants)
    ]
    title = f"Improvement of {measure} by tool calls, percentage points: same problems and seeds as with N = 0"
    return [Table(title, ("model", *columns), tuple(rows))] if rows else []


def _grid(variants: Sequence[Variant], measure: str) -> list[Table]:
    """Build a table of models by numbers of calls, as ZeroTIR's for models trained with different N."""
    calls = sorted({variant.calls for variant in variants})
    models = list(dict.fromkeys(variant.model for variant in variants))
    if len(calls) < 2 or len(models) < 2:
        return []
    found = {(variant.model, variant.calls): estimates(variant.measures[measure]) for variant in variants}
    rows = []
    for model in models:
        cells = [found.get((model, number)) for number in calls]
        rows.append((model, *(_cell(None if cell is None else overall(cell)) for cell in cells)))
    columns = ("model", *(f"N = {number}" for number in calls))
    return [Table(f"Models by tool calls in the evaluation, {measure}, mean over sets, %", columns, tuple(rows))]


def _against_paper(variants: Sequence[Variant], measure: str, paper: str | None) -> list[Table]:
    """Build a table of differences from the paper's own models. Averages are over common sets."""
    columns = _columns(variants, measure)
    rows = []
    for printed in PAPERS.get(paper or "", ()):
        if printed.measure != measure or not printed.trained_by_paper:
            continue
        for variant in variants:
            common = {name: each for name, each in variant.measures[measure].items() if name in printed.values}
            if not common:
                continue
            found = estimates(common)
            theirs = {**printed.values, AVERAGE: sum(printed.values[name] for name in common) / len(common)}
            cells = [f"{100 * found[name].value - theirs[name]:+.1f}" if name in found else "-" for name in columns]
            rows.append((f"{variant.label} - {printed.model}", *cells))
    title = f"Difference from the paper's {measure}, percentage points"
    return [Table(title, ("model", *columns), tuple(rows))] if rows else []


def _row(label: str, found: Mapping[str, Estimate], columns: Sequence[str], *, signed: bool = False) -> tuple[str, ...]:
    return (label, *(_cell(found.get(name), signed=signed) for name in columns))


def _same_sets(row: PaperRow, columns: Sequence[str]) -> bool:
    """Whether the average of a paper's row is over the same sets as the column of averages."""
    return row.values.keys() == set(columns) - {AVERAGE}


def _printed(row: PaperRow, columns: Sequence[str]) -> tuple[str, ...]:
    average = row.average if _same_sets(row, columns) else None
    values = {**row.values} | ({} if average is None else {AVERAGE: average})
    return (f"{row.model} (paper)", *(f"{values[name]:.1f}" if name in values else "-" for name in columns))


def _cell(estimate: Estimate | None, *, signed: bool = False) -> str:
    if estimate is None:
        return "-"
    sign = "+" if signed else ""
    low, high = estimate.interval
    return f"{100 * estimate.value:{sign}.1f} [{100 * low:{sign}.1f}, {100 * high:{sign}.1f}]"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _escaped(text: str) -> str:
    for character in "&%$#_{}":
        text = text.replace(character, f"\\{character}")
    return text
