"""What runs came to by the number of tool calls that they trained with: ZeroTIR's comparison of N."""

from collections.abc import Sequence
from html import escape

from torl.records import metric_names as names
from torl.report.calls_chart import Point, calls_chart, fit_of
from torl.report.panels import RunRecords, sets_of
from torl.report.series import values_of
from torl.report.style import table_html


def by_calls_section(runs: Sequence[RunRecords], window: int) -> str:
    """The chart with its fits, as HTML; nothing where all runs have the same N."""
    measured = accuracies_by_calls(runs, window)
    if len({point.calls for points in measured.values() for point in points}) < 2:
        return ""
    note = (
        f"Accuracy at the last evaluation, and of the last {window} steps of training, by the tool calls that a "
        "response may make. Dashed: a + b ln(1 + N), where three numbers of calls differ."
    )
    return (
        '<h2>By tool calls</h2><div class="charts"><section class="chart"><h3>Accuracy by N</h3>'
        f"<p>{escape(note)}</p>{calls_chart('by-calls', measured)}</section></div>{_fits(measured)}"
    )


def accuracies_by_calls(runs: Sequence[RunRecords], window: int) -> dict[str, list[Point]]:
    """For each evaluation set, and for training, the points of all runs in the order of N."""
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
