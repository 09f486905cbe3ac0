"""A page that compares runs: the papers' figures over steps, final results, and trends with the steps and N."""

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from statistics import fmean, median
from typing import Final

from torl.run.display.changes import AccuracyChange, accuracy_changes
from torl.run.display.series import log_fit, rank_correlation, values_of
from torl.run.records import metric_names as names
from torl.run.records.files import atomic_write
from torl.run.records.reading import read_metrics
from torl_lab.report.curves import charts_html
from torl_lab.report.figures import Point, calls_chart, fit_of
from torl_lab.report.page import document, missing_steps, read_config
from torl_lab.report.style import table_html
from torl_lab.view.panels import RunRecords, panels_of, sets_of

WINDOW: Final = 16
"""Number of steps that training curves are averaged over, as in ToRL's figures."""

_ENDS: Final = (names.CODE_RATIO, names.PASS_RATIO, names.CALLS_PER_TRAJECTORY, names.RESPONSE_TOKENS)
_TRENDS: Final = (names.ACCURACY, names.CODE_RATIO, names.CODE_BLOCKS_PER_RESPONSE, names.RESPONSE_TOKENS)


def read_run(label: str, directory: Path) -> RunRecords:
    """Read the records of a run, finished or running.

    Raises:
        RecordError: The records are missing or damaged.
    """
    return RunRecords(label, read_metrics(directory), read_config(directory)[1], accuracy_changes(directory))


def write_comparison(
    runs: Sequence[RunRecords], output: Path, window: int = WINDOW, *, reload_seconds: int = 0
) -> Path:
    """Write the page and return its file.

    Args:
        runs: Runs.
        output: File of the page.
        window: Number of steps that training curves are averaged over.
        reload_seconds: Interval at which an open page is loaded again, for a page that is written again; 0 never.

    Raises:
        RecordError: The page cannot be written.
    """
    title = "torl: " + ", ".join(run.label for run in runs)
    states = ", ".join(f"{run.label} {_progress(run)}" for run in runs)
    live = f" An open page is loaded again every {reload_seconds} s." if reload_seconds else ""
    body = (
        f"<h1>{escape(title)}</h1>"
        f'<p class="dim">{escape(states)}.{live}</p>'
        f'<p class="dim">Training curves are means over {window} steps (fewer at the start); faint lines are single '
        "steps, and evaluations are marked.</p>"
        f"{charts_html(panels_of(runs), runs, window)}"
        f"<h2>At the end</h2>{_at_the_end(runs, window)}{_changes(runs)}"
        f"{by_calls_section(runs, window)}"
        f"{_trends(runs)}"
    )
    with atomic_write(output) as file:
        file.write(document(title, body, reload_seconds=reload_seconds).encode("utf-8", errors="replace"))
    return output


def _progress(run: RunRecords) -> str:
    """Return the number of steps of a run, as text."""
    steps, missing = len(values_of(run.rows, names.TIME_STEP)[0]), missing_steps(run.rows, run.config)
    return f"{steps} of {steps + missing} steps" if missing else f"{steps} steps"


def _at_the_end(runs: Sequence[RunRecords], window: int) -> str:
    sets = sets_of(runs)
    head = ["run", "N", "steps", *sets, "training accuracy", *(each.label for each in (*_ENDS, names.TIME_STEP))]
    note = (
        f"Sets: accuracy at the last evaluation. Others: means over the last {window} steps; seconds are the median of "
        "all steps."
    )
    return table_html(head, [_end_row(run, sets, window) for run in runs], note)


def _changes(runs: Sequence[RunRecords]) -> str:
    """Return the table of the changes by training, as HTML; empty if no set was evaluated twice."""
    rows = [
        (run.label, name, f"{change.before:.1%}", f"{change.after:.1%}", _points(change))
        for run in runs
        for name, change in run.changes.items()
    ]
    note = "On the problems of both evaluations. ±: interval of 95 % of the change, over problems."
    head = ("run", "set", "first evaluation", "last evaluation", "change, points")
    return f"<h2>Change</h2>{table_html(head, rows, note)}" if rows else ""


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


def _trends(runs: Sequence[RunRecords]) -> str:
    head = ("run", "", "rank correlation with step", "with accuracy", "at step 0", "for each doubling", "R²")
    rows = [row for run in runs for metric in _TRENDS if (row := _trend_row(run, metric))]
    if not rows:
        return ""
    note = (
        "Each measure against the training steps and against the training accuracy of the same steps: Spearman's rank "
        "correlation; and the least-squares line a + b ln(1 + step) with its value at step 0, its growth when 1 + step "
        "doubles, and the explained fraction of the variance. The steps of one run are dependent: these are "
        "descriptions, not tests."
    )
    return f"<h2>With the steps</h2>{table_html(head, rows, note)}"


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


def by_calls_section(runs: Sequence[RunRecords], window: int) -> str:
    """Return the chart with its fits, as HTML; empty if all runs have the same N."""
    measured = accuracies_by_calls(runs, window)
    if len({point.calls for points in measured.values() for point in points}) < 2:
        return ""
    note = (
        f"Accuracy at the last evaluation, and of the last {window} steps of training, by the tool calls that a "
        "response may make. Dashed: a + b ln(1 + N), for at least three numbers of calls."
    )
    return (
        '<h2>By tool calls</h2><div class="charts"><section class="chart"><h3>Accuracy by N</h3>'
        f"<p>{escape(note)}</p>{calls_chart('by-calls', measured)}</section></div>{_fits(measured)}"
    )


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


def _fits(measured: dict[str, list[Point]]) -> str:
    fits = {name: fit for name, points in measured.items() if (fit := fit_of(points)) is not None}
    rows = [
        (name, f"{fit.intercept:.1%}", f"{100 * fit.per_doubling:+.1f}", f"{fit.explained:.2f}")
        for name, fit in fits.items()
    ]
    head = ("the dashed lines", "at N = 0", "points for each doubling of 1 + N", "R²")
    return table_html(head, rows) if rows else ""
