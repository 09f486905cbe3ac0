"""The tables of the use of code: how often, how much, and whether it goes with accuracy."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Final

from torl_lab.evaluation.estimates import Estimate, correlation
from torl_lab.evaluation.output import Table
from torl_lab.evaluation.papers import PAPERS
from torl_lab.evaluation.results import CODE_USE, CodeUse, Variant

_COLUMNS: Final = ("with code, %", *(metric.label for metric in CODE_USE[1:]))


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
        rows.append(_row(label, {metric: fmean(use.means[metric] for use in code.values()) for metric in CODE_USE}))
        if len(code) > 1:
            rows += [_row(f"{label}, {name}", use.means) for name, use in code.items()]
    for row in PAPERS.get(paper or "", ()):
        printed = (row.with_code, row.code_blocks)
        if row.measure == measure and printed != (None, None) and not row.values.keys().isdisjoint(sets):
            share = "-" if row.with_code is None else f"{row.with_code:.0f}%"
            rows.append((f"{row.model} (paper)", share, CODE_USE[1].show(row.code_blocks), "-", "-"))
    notes = ("Means over responses" + (", then over sets" if len(sets) > 1 else ""),)
    return Table(f"Use of code in responses, {measure}", ("model", *_COLUMNS), tuple(rows), notes)


def _row(label: str, means: Mapping[str, float]) -> tuple[str, ...]:
    share, *others = CODE_USE
    return (label, f"{means[share]:.1%}", *(metric.show(means[metric]) for metric in others))


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
