"""A page that compares runs: the papers' figures over steps, final results, and trends with the steps and N."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final

from torl.run.display.series import AccuracyChange, log_fit, rank_correlation, values_of
from torl.run.records import metric_names as names
from torl_lab.report.figures import Point, calls_chart, fit_of, table
from torl_lab.report.page import write_page
from torl_lab.view.panels import RunRecords, sets_of

WINDOW: Final = 16
"""Number of steps that training curves are averaged over, as in ToRL's figures."""

_BY_CALLS: Final = (
    "Accuracy at the last evaluation, and of the last {window} steps of training, by the tool calls that a response "
    "may make. Fitted: a + b ln(1 + N), for at least three numbers of calls."
)
_ENDS: Final = (names.CODE_RATIO, names.PASS_RATIO, names.CALLS_PER_TRAJECTORY, names.RESPONSE_TOKENS)
_TRENDS: Final = (names.ACCURACY, names.CODE_RATIO, names.CODE_BLOCKS_PER_RESPONSE, names.RESPONSE_TOKENS)


def write_comparison(
    runs: Sequence[RunRecords], output: Path, window: int = WINDOW, *, reload_seconds: int = 0
) -> Path:
    """Write the page and return its file.

    Args:
        runs: Runs in the order of their colors.
        output: File of the page.
        window: Number of steps that training curves are averaged over.
        reload_seconds: Interval, as in `write_page`.

    Raises:
        RecordError: The page cannot be written.
    """
    tables = [_at_the_end(runs, window), _changes(runs)]
    measured = accuracies_by_calls(runs, window)
    if figure := calls_chart("Accuracy by N", _BY_CALLS.format(window=window), measured):
        tables.append(_fits(measured))
    tables.append(_trends(runs))
    report = {"tables": [each for each in tables if each], "figures": [figure] if figure else []}
    return write_page(output, report, runs, window, reload_seconds=reload_seconds)


def _at_the_end(runs: Sequence[RunRecords], window: int) -> dict[str, Any]:
    sets = sets_of(runs)
    head = ["run", "N", "steps", *sets, "training accuracy", *(each.label for each in (*_ENDS, names.TIME_STEP))]
    note = (
        f"Sets: accuracy at the last evaluation. Others: means over the last {window} steps; seconds are the median of "
        "all steps."
    )
    return table("At the end", head, [_end_row(run, sets, window) for run in runs], note)


def _changes(runs: Sequence[RunRecords]) -> dict[str, Any] | None:
    """Return the table of the changes by training; None if no set was evaluated twice."""
    rows = [
        (run.label, name, f"{change.before:.1%}", f"{change.after:.1%}", _points(change))
        for run in runs
        for name, change in run.changes.items()
    ]
    note = "On the problems of both evaluations. ±: interval of 95 % of the change, over problems."
    head = ("run", "set", "first evaluation", "last evaluation", "change, points")
    return table("Change", head, rows, note) if rows else None


def _points(change: AccuracyChange) -> str:
    width = "" if change.half_width is None else f" ± {100 * change.half_width:.1f}"
    points = round(100 * (change.after - change.before), 1) + 0.0  # not -0.0
    return f"{points:+.1f}{width}"


def _end_row(run: RunRecords, sets: Sequence[str], window: int) -> Iterator[str]:
    yield run.label
    yield "-" if run.max_tool_calls is None else str(run.max_tool_calls)
    seconds = values_of(run.rows, names.TIME_STEP)[1]
    yield str(len(seconds))
    for name in sets:
        yield _percent(values_of(run.rows, names.evaluation_name(name, names.ACCURACY))[1][-1:])
    yield _percent(values_of(run.rows, names.ACCURACY)[1][-window:])
    for metric in _ENDS:
        values = values_of(run.rows, metric)[1][-window:]
        yield metric.show(fmean(values) if values else None)
    yield names.TIME_STEP.show(median(seconds) if seconds else None)


def _percent(accuracies: Sequence[float]) -> str:
    """Return the mean of accuracies as text."""
    return f"{fmean(accuracies):.1%}" if accuracies else "-"


def _trends(runs: Sequence[RunRecords]) -> dict[str, Any] | None:
    head = ("run", "", "rank correlation with step", "with accuracy", "at step 0", "for each doubling", "R²")
    rows = [row for run in runs for metric in _TRENDS if (row := _trend_row(run, metric))]
    note = (
        "Each measure against the training steps and against the training accuracy of the same steps: Spearman's rank "
        "correlation; and the least-squares line a + b ln(1 + step) with its value at step 0, its growth when 1 + step "
        "doubles, and the explained fraction of the variance. The steps of one run are dependent: these are "
        "descriptions, not tests."
    )
    return table("With the steps", head, rows, note) if rows else None


def _trend_row(run: RunRecords, metric: names.Metric) -> Sequence[str] | None:
    steps, values = values_of(run.rows, metric)
    if len(steps) < WINDOW:
        return None  # a few steps correlate with anything
    correlation, fit = rank_correlation(steps, values), log_fit(steps, values)
    if correlation is None or fit is None:
        return None
    at_start = "below 0" if fit.intercept < 0 else f"{fit.intercept:.3g}"  # no measure here can be negative
    numbers = at_start, f"{fit.per_doubling:+.3g}", f"{fit.explained:.2f}"
    return run.label, metric.label, f"{correlation:+.2f}", _with_accuracy(run, metric), *numbers


def _with_accuracy(run: RunRecords, name: str) -> str:
    """Return the rank correlation of a metric with training accuracy over the steps with both, as text."""
    accuracies = dict(zip(*values_of(run.rows, names.ACCURACY), strict=True))
    pairs = [
        (value, accuracies[step]) for step, value in zip(*values_of(run.rows, name), strict=True) if step in accuracies
    ]
    found = None if name == names.ACCURACY or not pairs else rank_correlation(*zip(*pairs, strict=True))
    return "-" if found is None else f"{found:+.2f}"


def accuracies_by_calls(runs: Sequence[RunRecords], window: int) -> dict[str, list[Point]]:
    """Return the points of all runs by N, for each evaluation set and for training."""
    found: dict[str, list[Point]] = {}
    for run in runs:
        if run.max_tool_calls is None:
            continue
        ends = {
            name: values_of(run.rows, names.evaluation_name(name, names.ACCURACY))[1][-1:] for name in sets_of(runs)
        }
        ends["training"] = values_of(run.rows, names.ACCURACY)[1][-window:]
        for name, values in ends.items():
            if values:
                found.setdefault(name, []).append(Point(run.max_tool_calls, sum(values) / len(values)))
    return {name: sorted(points, key=lambda point: point.calls) for name, points in found.items()}


def _fits(measured: dict[str, list[Point]]) -> dict[str, Any] | None:
    fits = {name: fit for name, points in measured.items() if (fit := fit_of(points)) is not None}
    rows = [
        (name, f"{fit.intercept:.1%}", f"{100 * fit.per_doubling:+.1f}", f"{fit.explained:.2f}")
        for name, fit in fits.items()
    ]
    head = ("the fitted lines", "at N = 0", "points for each doubling of 1 + N", "R²")
    return table("Accuracy by N", head, rows) if rows else None
