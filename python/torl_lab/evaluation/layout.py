"""Tables of text, and their forms in Markdown and LaTeX."""

from collections.abc import Sequence
from dataclasses import dataclass

from torl_lab.evaluation.estimates import Estimate


@dataclass(frozen=True, slots=True)
class Table:
    """A table with notes below it. The first cell of a row is its label."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def estimate_cell(estimate: Estimate | None, *, signed: bool = False) -> str:
    """Return an estimate in percent, with its interval in brackets; "-" for none."""
    if estimate is None:
        return "-"
    sign = "+" if signed else ""
    low, high = estimate.interval
    return f"{100 * estimate.value:{sign}.1f} [{100 * low:{sign}.1f}, {100 * high:{sign}.1f}]"


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
