"""Several runs on one page: the papers' figures over steps, what runs came to, and how they go with the steps and N."""

import tomllib
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from statistics import median
from typing import Final

from torl.records import metric_names as names
from torl.records.files import atomic_write
from torl.records.reading import read_metrics
from torl.report.by_calls import by_calls_section
from torl.report.page import document, read_config
from torl.report.panels import RunRecords, panel_sections, sets_of
from torl.report.series import log_fit, rank_correlation, values_of
from torl.report.style import table_html

WINDOW: Final = 16
"""Steps of the mean that curves of training show: ToRL's figures have one of 16."""

_TRENDS: Final = (
    ("training accuracy", names.ACCURACY),
    ("code ratio", names.CODE_RATIO),
    ("code blocks of a response", names.CODE_BLOCKS_PER_RESPONSE),
    ("tokens of a response", names.RESPONSE_TOKENS),
)


def read_run(label: str, directory: Path) -> RunRecords:
    """The records of a run, finished or not.

    Raises:
        RecordError: they are missing or damaged.
    """
    return RunRecords(label, read_metrics(directory), tomllib.loads(read_config(directory)))


def write_comparison(runs: Sequence[RunRecords], output: Path, window: int = WINDOW) -> Path:
    """Write the page; returns its file.

    Raises:
        RecordError: it cannot be written.
    """
    charts = "".join(
        f'<section class="chart"><h3>{escape(panel.title)}</h3><p>{escape(panel.note)}</p>{html}</section>'
        for panel, html in panel_sections(runs, window)
    )
    title = "torl: " + ", ".join(run.label for run in runs)
    body = (
        f"<h1>{escape(title)}</h1>"
        f'<p class="dim">Curves of training are means over {window} steps (fewer at the start), each step faint behind '
        "them; evaluations are marked.</p>"
        f'<div class="charts">{charts}</div>'
        f"<h2>At the end</h2>{_at_the_end(runs, window)}"
        f"{by_calls_section(runs, window)}"
        f"{_trends(runs)}"
    )
    with atomic_write(output) as file:
        file.write(document(title, body).encode("utf-8", errors="replace"))
    return output


def _at_the_end(runs: Sequence[RunRecords], window: int) -> str:
    sets = sets_of(runs)
    head = [
        "run",
        "N",
        "steps",
        *sets,
        "training accuracy",
        "code ratio",
        "pass ratio",
        "calls",
        "tokens",
        "seconds a step",
    ]
    note = (
        f"Sets: accuracy at the last evaluation. The rest: means over the last {window} steps; of the seconds, the "
        "median of all steps."
    )
    return table_html(head, [_end_row(run, sets, window) for run in runs], note)


def _end_row(run: RunRecords, sets: Sequence[str], window: int) -> Iterator[str]:
    yield run.label
    yield "-" if run.max_tool_calls is None else str(run.max_tool_calls)
    yield str(len(values_of(run.rows, names.REWARD_MEAN)[0]))
    for name in sets:
        yield _told(values_of(run.rows, names.evaluation_name(name, names.ACCURACY))[1][-1:], "{:.1%}")
    forms = {names.ACCURACY: "{:.1%}", names.CODE_RATIO: "{:.2f}", names.PASS_RATIO: "{:.2f}"}
    forms |= {names.CALLS_PER_TRAJECTORY: "{:.2f}", names.RESPONSE_TOKENS: "{:.0f}"}
    for name, form in forms.items():
        yield _told(values_of(run.rows, name)[1][-window:], form)
    seconds = values_of(run.rows, names.TIME_STEP)[1]
    yield f"{median(seconds):.1f}" if seconds else "-"


def _told(values: Sequence[float], form: str) -> str:
    """The mean, as text."""
    return form.format(sum(values) / len(values)) if values else "-"


def _trends(runs: Sequence[RunRecords]) -> str:
    head = ("run", "", "Spearman's rank correlation", "at step 0", "for each doubling", "R²")
    rows = [row for run in runs for label, name in _TRENDS if (row := _trend_row(run, label, name))]
    if not rows:
        return ""
    note = (
        "Each measure against the steps of training: the rank correlation, and the least-squares line "
        "a + b ln(1 + step), its value at step 0, its growth where 1 + step doubles, and the share of the variance "
        "that it explains. The steps of one run depend on each other: this describes the run and is no test."
    )
    return f"<h2>With the steps</h2>{table_html(head, rows, note)}"


def _trend_row(run: RunRecords, label: str, name: str) -> Sequence[str] | None:
    steps, values = values_of(run.rows, name)
    if len(steps) < WINDOW:
        return None  # a few steps go with anything
    correlation, fit = rank_correlation(steps, values), log_fit(steps, values)
    if correlation is None or fit is None:
        return None
    numbers = f"{fit.intercept:.3g}", f"{fit.per_doubling:+.3g}", f"{fit.explained:.2f}"
    return run.label, label, f"{correlation:+.2f}", *numbers
