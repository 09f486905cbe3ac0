"""The tables of an evaluation: accuracies in percent, with 95 % intervals, beside those of a paper."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torl.apps.evaluation.papers import PAPERS, PaperRow
from torl.apps.evaluation.results import AVERAGE, Estimate, Variant, difference, estimates, overall, tool_differences


@dataclass(frozen=True, slots=True)
class Table:
    """A table: what it is of, its columns, its rows (the first cell is a label), and notes below it."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def all_tables(arms: Sequence[Variant], paper: str | None = None) -> list[Table]:
    """Every table that there is something for.

    Args:
        arms: what was measured.
        paper: the name of a suite of `PAPERS`, whose rows and the differences from them are shown too.
    """
    tables = []
    for measure in _measures(arms):
        measured = [arm for arm in arms if measure in arm.measures]
        tables.append(_accuracies(measured, measure, paper))
        tables += _differences(measured, measure)
        tables += _grid(measured, measure)
        tables += _against_paper(measured, measure, paper)
    return tables


def markdown(table: Table) -> str:
    """As a table of GitHub's Markdown, under its title."""
    lines = [f"**{table.title}**", "", _line(table.columns), _line(["---"] + ["---:"] * (len(table.columns) - 1))]
    lines += [_line(row) for row in table.rows]
    return "\n".join([*lines, *(f"\n{note}." for note in table.notes)]) + "\n"


def latex(table: Table) -> str:
    """As a `tabular` with the rules of the package booktabs, in a `table`."""
    rows = [" & ".join(map(_escaped, row)) + r" \\" for row in table.rows]
    head = " & ".join(map(_escaped, table.columns)) + r" \\"
    columns = "l" + "r" * (len(table.columns) - 1)
    caption = ". ".join([table.title, *table.notes])
    begin = [r"\begin{table}", r"\centering", rf"\begin{{tabular}}{{{columns}}}"]
    end = [r"\end{tabular}", rf"\caption{{{_escaped(caption)}.}}", r"\end{table}", ""]
    return "\n".join([*begin, r"\toprule", head, r"\midrule", *rows, r"\bottomrule", *end])


def _measures(arms: Sequence[Variant]) -> list[str]:
    """All measures, in the order in which they were found."""
    return list(dict.fromkeys(measure for arm in arms for measure in arm.measures))


def _columns(arms: Sequence[Variant], measure: str) -> list[str]:
    names = list(dict.fromkeys(name for arm in arms for name in arm.measures[measure]))
    return [*names, AVERAGE] if len(names) > 1 else names


def _accuracies(arms: Sequence[Variant], measure: str, paper: str | None) -> Table:
    columns = _columns(arms, measure)
    rows = [_row(arm.label, estimates(arm.measures[measure]), columns) for arm in arms]
    printed = [row for row in PAPERS.get(paper or "", ()) if row.measure == measure]
    rows += [_printed(row, columns) for row in printed]
    sizes = {name: len(values_P) for arm in arms for name, values_P in arm.measures[measure].items()}
    problems = ", ".join(f"{size} in {name}" for name, size in sizes.items())
    notes = [f"Problems: {problems}; in brackets 95 % intervals over problems"]
    notes += [row.note for row in printed if row.note is not None]
    return Table(f"Accuracy, {measure}, %", ("model", *columns), tuple(rows), tuple(notes))


def _differences(arms: Sequence[Variant], measure: str) -> list[Table]:
    columns = _columns(arms, measure)
    rows = [
        _row(arm.label, difference(arm, without, measure), columns, signed=True)
        for arm, without in tool_differences(arms)
    ]
    title = f"What the tool adds to {measure}, percentage points: the same problems and seeds with N = 0"
    return [Table(title, ("model", *columns), tuple(rows))] if rows else []


def _grid(arms: Sequence[Variant], measure: str) -> list[Table]:
    """Models down, numbers of calls across: ZeroTIR's table where the models were trained with different N."""
    calls = sorted({arm.calls for arm in arms})
    models = list(dict.fromkeys(arm.model for arm in arms))
    if len(calls) < 2 or len(models) < 2:
        return []
    found = {(arm.model, arm.calls): estimates(arm.measures[measure]) for arm in arms}
    rows = []
    for model in models:
        cells = [found.get((model, number)) for number in calls]
        rows.append((model, *(_cell(None if cell is None else overall(cell)) for cell in cells)))
    columns = ("model", *(f"N = {number}" for number in calls))
    return [Table(f"Models by tool calls in the evaluation, {measure}, mean over sets, %", columns, tuple(rows))]


def _against_paper(arms: Sequence[Variant], measure: str, paper: str | None) -> list[Table]:
    """Ours less the rows that the paper trained itself; averages are means over the sets that both have."""
    columns = _columns(arms, measure)
    rows = []
    for printed in PAPERS.get(paper or "", ()):
        if printed.measure != measure or not printed.trained_by_paper:
            continue
        for arm in arms:
            common = {name: each for name, each in arm.measures[measure].items() if name in printed.values}
            if not common:
                continue
            told = estimates(common)
            theirs = {**printed.values, AVERAGE: sum(printed.values[name] for name in common) / len(common)}
            cells = [f"{100 * told[name].value - theirs[name]:+.1f}" if name in told else "-" for name in columns]
            rows.append((f"{arm.label} - {printed.model}", *cells))
    title = f"Difference from the paper's {measure}, percentage points"
    return [Table(title, ("model", *columns), tuple(rows))] if rows else []


def _row(label: str, found: Mapping[str, Estimate], columns: Sequence[str], *, signed: bool = False) -> tuple[str, ...]:
    return (label, *(_cell(found.get(name), signed=signed) for name in columns))


def _printed(row: PaperRow, columns: Sequence[str]) -> tuple[str, ...]:
    values = {**row.values} | ({AVERAGE: row.average} if row.average is not None else {})
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
