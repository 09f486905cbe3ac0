"""The tables of an evaluation: accuracies in percent with 95 % intervals, rows of a paper, and the use of code."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Final

from torl_lab.evaluation.estimates import AVERAGE, Estimate, correlation, estimates
from torl_lab.evaluation.output import Table, estimate_cell
from torl_lab.evaluation.papers import PAPERS, SIZES, PaperRow
from torl_lab.evaluation.results import CODE_USE, CodeUse, Variant, difference, model_differences, tool_differences


def all_tables(
    variants: Sequence[Variant], paper: str | None = None, notes: Sequence[str] = (), baseline: str | None = None
) -> list[Table]:
    """Build all tables that have rows.

    Args:
        variants: Results of the evaluation.
        paper: Name in `PAPERS`. Its rows with a set of the evaluation, and the differences from them, are included.
        notes: Notes on the problem sets.
        baseline: Model that the others are compared with, problem by problem.
    """
    tables = []
    for measure in dict.fromkeys(measure for variant in variants for measure in variant.measures):
        measured = [variant for variant in variants if measure in variant.measures]
        tables.append(_accuracies(measured, measure, paper, notes))
        tables += _differences(measured, measure, baseline)
        tables += _grids(measured, measure)
        tables += _against_paper(measured, measure, paper)
        tables += _code_tables(measured, measure, paper)
    return tables


def _rows_of_paper(paper: str | None, measure: str, sets: Sequence[str]) -> list[PaperRow]:
    """Return the rows of a paper with a measure on any of the sets."""
    rows = PAPERS.get(paper or "", ())
    return [row for row in rows if row.measure == measure and not row.values.keys().isdisjoint(sets)]


def _columns(variants: Sequence[Variant], measure: str) -> list[str]:
    names = list(dict.fromkeys(name for variant in variants for name in variant.measures[measure]))
    return [*names, AVERAGE] if len(names) > 1 else names


def _accuracies(variants: Sequence[Variant], measure: str, paper: str | None, set_notes: Sequence[str]) -> Table:
    columns = _columns(variants, measure)
    rows = [_row(variant.label, variant.estimates(measure), columns) for variant in variants]
    printed = _rows_of_paper(paper, measure, columns)
    rows += [_printed(row, columns) for row in printed]
    sizes = {name: len(values_P) for variant in variants for name, values_P in variant.measures[measure].items()}
    problems = ", ".join(f"{size} in {name}" for name, size in sizes.items())
    notes = [f"Problems: {problems}; 95 % confidence intervals {_about(variants, measure)} in brackets"]
    notes += set_notes
    notes += [row.note for row in printed if row.note is not None and _same_sets(row, columns)]
    notes += [row.comment for row in printed if row.comment is not None]
    in_paper = {name for row in printed for name in row.values}
    notes += [
        f"{name}: {size} problems, but the paper's accuracy is over {SIZES[name]}"
        for name, size in sizes.items()
        if name in in_paper and size != SIZES[name]
    ]
    if paper is not None and not printed:
        notes.append(f"The paper {paper!r} has no {measure} on any of these sets")
    return Table(f"Accuracy, {measure}, %", ("model", *columns), tuple(rows), tuple(notes))


def _about(variants: Sequence[Variant], measure: str) -> str:
    """Return what the intervals of a measure are about."""
    if any(variant.has_sample_intervals(measure) for variant in variants):
        return "over samples, of each model on exactly these problems,"
    if any(variant.for_model for variant in variants):
        return "over problems (on exactly these problems, only avg@n of at least two samples has one)"
    return "over problems"


def _differences(variants: Sequence[Variant], measure: str, baseline: str | None) -> list[Table]:
    columns = _columns(variants, measure)
    comparisons = {
        f"Improvement of {measure} by tool calls, percentage points: same problems and seeds as with N = 0": [
            (variant.label, difference(variant, without, measure)) for variant, without in tool_differences(variants)
        ],
        f"Difference of {measure} from {baseline}, percentage points: same problems and seeds": [
            (variant.label, difference(variant, other, measure))
            for variant, other in model_differences(variants, baseline)
        ],
    }
    return [
        Table(title, ("model", *columns), tuple(_row(label, found, columns, "+.1f") for label, found in rows))
        for title, rows in comparisons.items()
        if rows
    ]


def _grids(variants: Sequence[Variant], measure: str) -> list[Table]:
    """Build a table of models by numbers of calls for each set, as ZeroTIR's for models trained with different N."""
    calls = sorted({variant.calls for variant in variants})
    models = list(dict.fromkeys(variant.model for variant in variants))
    if len(calls) < 2 or len(models) < 2:
        return []
    found = {(variant.model, variant.calls): variant.estimates(measure) for variant in variants}
    columns = ("model", *(f"N = {number}" for number in calls))
    tables = []
    for name in _columns(variants, measure):
        rows = [(model, *(estimate_cell(found.get((model, n), {}).get(name)) for n in calls)) for model in models]
        of_set = "mean over sets" if name == AVERAGE else name
        tables.append(Table(f"Models by tool calls in the evaluation, {measure}, {of_set}, %", columns, tuple(rows)))
    return tables


def _against_paper(variants: Sequence[Variant], measure: str, paper: str | None) -> list[Table]:
    """Build a table of differences from the paper's own models, on sets with as many problems as in the paper.

    Averages are over common sets.
    """
    columns = _columns(variants, measure)
    rows = []
    for printed in _rows_of_paper(paper, measure, columns):
        for variant in variants if printed.trained_by_paper else ():
            common = {
                name: values_P
                for name, values_P in variant.measures[measure].items()
                if name in printed.values and len(values_P) == SIZES[name]
            }
            if not common:
                continue
            found = estimates(common)
            theirs = {**printed.values, AVERAGE: sum(printed.values[name] for name in common) / len(common)}
            cells = [f"{100 * found[name].value - theirs[name]:+.1f}" if name in found else "-" for name in columns]
            rows.append((f"{variant.label} - {printed.model}", *cells))
    title = f"Difference from the paper's {measure}, percentage points"
    return [Table(title, ("model", *columns), tuple(rows))] if rows else []


def _row(label: str, found: Mapping[str, Estimate], columns: Sequence[str], number: str = ".1f") -> tuple[str, ...]:
    return (label, *(estimate_cell(found.get(name), number) for name in columns))


def _same_sets(row: PaperRow, columns: Sequence[str]) -> bool:
    """Whether the average of a paper's row is over the same sets as the column of averages."""
    return row.values.keys() == set(columns) - {AVERAGE}


def _printed(row: PaperRow, columns: Sequence[str]) -> tuple[str, ...]:
    average = row.average if _same_sets(row, columns) else None
    values = {**row.values} | ({} if average is None else {AVERAGE: average})
    return (f"{row.model} (paper)", *(f"{values[name]:.1f}" if name in values else "-" for name in columns))


_CODE_COLUMNS: Final = ("with code, %", *(metric.label for metric in CODE_USE[1:]))


def _code_tables(variants: Sequence[Variant], measure: str, paper: str | None) -> list[Table]:
    """Build the tables of the use of code in the responses of a measure; none for maj@k and pass@k."""
    measured = [(variant.label, variant.code[measure]) for variant in variants if measure in variant.code]
    if not measured:
        return []
    sets = list(dict.fromkeys(name for _, code in measured for name in code))
    return [_code_use(measured, sets, measure, paper), *_correlations(measured, sets, measure)]


def _code_use(
    measured: Sequence[tuple[str, Mapping[str, CodeUse]]], sets: Sequence[str], measure: str, paper: str | None
) -> Table:
    rows = []
    for label, code in measured:
        rows.append(_code_row(label, {each: fmean(use.means[each] for use in code.values()) for each in CODE_USE}))
        if len(code) > 1:
            rows += [_code_row(f"{label}, {name}", use.means) for name, use in code.items()]
    for row in _rows_of_paper(paper, measure, sets):
        if (row.with_code, row.code_blocks) != (None, None):
            share = "-" if row.with_code is None else f"{row.with_code:.0f}%"
            rows.append((f"{row.model} (paper)", share, CODE_USE[1].show(row.code_blocks), "-", "-"))
    notes = ("Means over responses" + (", then over sets" if len(sets) > 1 else ""),)
    return Table(f"Use of code in responses, {measure}", ("model", *_CODE_COLUMNS), tuple(rows), notes)


def _code_row(label: str, means: Mapping[str, float]) -> tuple[str, ...]:
    share, *others = CODE_USE
    return (label, f"{means[share]:.1%}", *(metric.show(means[metric]) for metric in others))


def _correlations(
    measured: Sequence[tuple[str, Mapping[str, CodeUse]]], sets: Sequence[str], measure: str
) -> list[Table]:
    rows = []
    for label, code in measured:
        found = {name: correlation(use.accuracy_P, use.with_code_P) for name, use in code.items()}
        if any(each is not None for each in found.values()):
            rows.append((label, *(estimate_cell(found.get(name), "+.2f", 1) for name in sets)))
    note = "Spearman's rank correlation over the problems of a set, with 95 % intervals; - where either is constant"
    title = f"Correlation of accuracy with the fraction of responses with code, {measure}"
    return [Table(title, ("model", *sets), tuple(rows), (note,))] if rows else []
