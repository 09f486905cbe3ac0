"""The tables of the use of code: how often, how much, and whether it goes with accuracy."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Final

from torl_lab.evaluation.estimates import Estimate, correlation
from torl_lab.evaluation.layout import Table
from torl_lab.evaluation.papers import PAPERS
from torl_lab.evaluation.results import CODE_USE, CodeUse, Variant

_COLUMNS: Final = ("with code, %", "code blocks", "tool calls", "tokens")
_FORMS: Final = ("{:.1%}", "{:.3f}", "{:.3f}", "{:.0f}")


def code_tables(variants: Sequence[Variant], measure: str, paper: str | None = None) -> list[Table]:
    """Build the tables of the use of code in the responses of a measure; none for maj@k and pass@k.

    Args:
        variants: Results with this measure.
        measure: "greedy" or "avg@n".
        paper: Name in `PAPERS`, whose rows with numbers of code are included.
    """
    measured = [(variant.label, variant.code[measure]) for variant in variants if measure in variant.code]
    if not measured:
        return []
    sets = list(dict.fromkeys(name for _, code in measured for name in code))
    return [_use(measured, sets, measure, paper), *_correlations(measured, sets, measure)]


def _use(
    measured: Sequence[tuple[str, Mapping[str, CodeUse]]], sets: Sequence[str], measure: str, paper: str | None
) -> Table:
    rows = []
    for label, code in measured:
        means = [fmean(use.means[name] for use in code.values()) for name in CODE_USE]
        rows.append(_row(label, means))
        if len(code) > 1:
            rows += [_row(f"{label}, {name}", [use.means[each] for each in CODE_USE]) for name, use in code.items()]
    for row in PAPERS.get(paper or "", ()):
        printed = (row.with_code, row.code_blocks)
        if row.measure == measure and printed != (None, None) and not row.values.keys().isdisjoint(sets):
            share = "-" if row.with_code is None else f"{row.with_code:.0f}%"
            blocks = "-" if row.code_blocks is None else f"{row.code_blocks:.3f}"
            rows.append((f"{row.model} (paper)", share, blocks, "-", "-"))
    notes = ("Means over responses" + (", then over sets" if len(sets) > 1 else ""),)
    return Table(f"Use of code in responses, {measure}", ("model", *_COLUMNS), tuple(rows), notes)


def _row(label: str, means: Sequence[float]) -> tuple[str, ...]:
    return (label, *(form.format(mean) for form, mean in zip(_FORMS, means, strict=True)))


def _correlations(
    measured: Sequence[tuple[str, Mapping[str, CodeUse]]], sets: Sequence[str], measure: str
) -> list[Table]:
    rows = []
    for label, code in measured:
        found = {name: correlation(use.accuracy_P, use.with_code_P) for name, use in code.items()}
        if any(each is not None for each in found.values()):
            rows.append((label, *(_cell(found.get(name)) for name in sets)))
    note = "Spearman's rank correlation over the problems of a set, with 95 % intervals; - where either is constant"
    title = f"Correlation of accuracy with the fraction of responses with code, {measure}"
    return [Table(title, ("model", *sets), tuple(rows), (note,))] if rows else []


def _cell(estimate: Estimate | None) -> str:
    if estimate is None:
        return "-"
    low, high = estimate.interval
    return f"{estimate.value:+.2f} [{low:+.2f}, {high:+.2f}]"
