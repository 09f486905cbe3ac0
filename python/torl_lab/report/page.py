"""The report of runs, also while they train: the viewer's overview as one file, made from the run directories alone."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from torl.base.errors import ConfigError, RecordError
from torl.base.options import parse_toml, read_text
from torl.run.config import LearningConfig
from torl.run.display.outcome import outcome_of
from torl.run.display.series import AccuracyChange, Row, accuracy_changes, evaluation_sets, values_of
from torl.run.records import metric_names as names
from torl.run.records.files import CONFIG_FILE, REPORT_FILE, atomic_write
from torl.run.records.reading import read_metrics
from torl.training.monitor import Monitor
from torl_lab.report.figures import shown_examples, table
from torl_lab.view.overview import curves, settings, summary
from torl_lab.view.panels import RunRecords, installed_panels
from torl_lab.view.saved import saved_page

RELOAD_SECONDS: Final = 30
"""Interval at which the open page of a running run is loaded again."""
_WINDOW: Final = 5
"""Number of steps that training curves are averaged over, in runs of at least four times as many."""
_TABLE: Final = (
    *(names.ACCURACY, names.GREEDY_ACCURACY, names.CODE_RATIO, names.GREEDY_CODE_RATIO),
    *(names.PASS_RATIO, names.PASS_RATIO_CORRECT, names.PASS_RATIO_INCORRECT),
    *(names.CODE_BLOCKS_PER_RESPONSE, names.EXECUTED_RATIO, names.BEFORE_ANSWER_RATIO),
    *(names.ANSWERED, names.TRUNCATED, names.RESPONSE_TOKENS),
)


def read_run(label: str, directory: Path) -> RunRecords:
    """Read the records of a run, finished or running.

    Raises:
        RecordError: The records are missing or damaged.
    """
    rows = read_metrics(directory)
    text, config = read_config(directory)
    return RunRecords(label, rows, config, accuracy_changes(directory), text)


def read_config(run_directory: Path) -> tuple[str, dict[str, Any]]:
    """Read the resolved configuration of a run, as TOML and as a tree.

    Raises:
        RecordError: The configuration cannot be read, or is damaged.
    """
    path = run_directory / CONFIG_FILE
    try:
        text = read_text(path)
        return text, parse_toml(path, text)
    except ConfigError as error:
        raise RecordError(str(error)) from error


def write_report(run_directory: Path, statement: str | None = None) -> Path:
    """Write `report.html` into a run directory from its records, and return the file.

    It contains the outcome, a table of the first and the last evaluation, curves, sample trajectories and the
    configuration, without the parts that have no records.

    Args:
        run_directory: Directory of a run, finished or running.
        statement: Conclusions from the run. Empty lines separate paragraphs.

    Raises:
        RecordError: The records are missing or damaged, or the report cannot be written.
    """
    run = read_run(run_directory.resolve().name, run_directory)
    report = {
        "statement": [part.strip() for part in (statement or "").split("\n\n") if part.strip()],
        "outcome": outcome_of(run.rows, run.changes),
        "tables": list(_before_and_after(run)),
        "examples": shown_examples(run_directory),
    }
    window = _WINDOW if len(values_of(run.rows, names.TIME_STEP)[0]) >= 4 * _WINDOW else 1
    reload_seconds = RELOAD_SECONDS if missing_steps(run) else 0
    return write_page(run_directory / REPORT_FILE, report, [run], window, reload_seconds=reload_seconds)


def write_page(
    path: Path, report: Mapping[str, Any], runs: Sequence[RunRecords] = (), window: int = 1, *, reload_seconds: int = 0
) -> Path:
    """Write a page that works offline, and return its file.

    Args:
        path: Path of the page.
        report: Its parts in addition to the overview of the runs: "title", "statement", "outcome", "tables", "bars",
            "figures" and "examples", each optional (`view/static/report.js`).
        runs: Runs in the order of their colors.
        window: Number of steps that training curves are averaged over.
        reload_seconds: Interval at which an open page is loaded again, for a page that is written again; 0 never.

    Raises:
        RecordError: The page cannot be written.
    """
    described = {"path": "", "is_run": True, "rows": 0, "error": None}
    overview = {
        "runs": [summary(run) | described | {"finished": not missing_steps(run)} for run in runs],
        "curves": curves(runs) if runs else [],
        "changes": [],
        "settings": settings(runs),
        "metrics": [],
        "report": {**report, "reload_seconds": reload_seconds},
    }
    states = [{"run": label} for label in [run.label for run in runs] or [report.get("title", "")]]  # the title
    recorded = {"states": states, "answers": {"/api/overview?": overview}, "address": f"#/overview?smoothing={window}"}
    with atomic_write(path) as file:
        file.write(saved_page(recorded, reload_seconds=reload_seconds).encode())
    return path


def missing_steps(run: RunRecords) -> int:
    """Return the number of steps that a run has not played yet; 0 if its configuration does not say how many."""
    steps = int(run.config.get("run", {}).get("steps", 0))
    return max(0, steps - len(values_of(run.rows, names.TIME_STEP)[0]))


def _before_and_after(run: RunRecords) -> Iterator[dict[str, Any]]:
    for name in sorted(evaluation_sets(run.rows)):
        accuracy = names.evaluation_name(name, names.ACCURACY)
        evaluations = [row for row in run.rows if row.get(accuracy) is not None]
        if evaluations:
            first, last = evaluations[0], evaluations[-1]
            rows = list(_changes(first, last, name, run.changes))
            note = "±: interval of 95 % of the change, over problems." if "±" in str(rows) else ""
            head = ("", f"step {first['step']}", f"step {last['step']}", "change")
            yield table(f"Before and after, on {name}", head, rows, note)


def _changes(first: Row, last: Row, set_name: str, changes: Mapping[str, AccuracyChange]) -> Iterator[list[Any]]:
    for metric in _TABLE:
        full_name = names.evaluation_name(set_name, metric)
        before, after = first.get(full_name), last.get(full_name)
        if before is not None or after is not None:
            change: Any = "-"
            if before is not None and after is not None:
                change = _change(metric, before, after, _half_width(changes, set_name, before, after))
            yield [metric.label.capitalize(), metric.show(before), metric.show(after), change]


def _half_width(changes: Mapping[str, AccuracyChange], set_name: str, before: float, after: float) -> float | None:
    """Return the interval of a change of the accuracies in the files of a set; None for other metrics."""
    for change in filter(None, map(changes.get, (set_name, f"{set_name}.greedy"))):
        if abs(change.before - before) + abs(change.after - after) < 1e-6:
            return change.half_width
    return None


def _change(metric: names.Metric, before: float, after: float, half_width: float | None) -> Any:
    text = f"{after - before:+{metric.form}}"
    if half_width is not None and metric.better == "higher":
        text += f" ± {metric.show(half_width)}"
    if metric.better is None or before == after:
        return text
    return [text, "better" if (after > before) is (metric.better == "higher") else "worse"]


class ReportPage(Monitor):
    """Writes the page of a run after each evaluation and checkpoint."""

    def __init__(self, config: LearningConfig, directory: Path, first_step: int) -> None:
        """Note where the run is, and its note."""
        self._directory, self._note = directory, config.run.note

    @classmethod
    def wants(cls, config: LearningConfig) -> bool:
        """Whether to write the page: always.

        Raises:
            ConfigError: A package adds an invalid panel, which would end the run at its first page.
        """
        installed_panels()
        return True

    def milestone(self) -> None:
        """Write the page, unless nothing can be compared yet."""
        write_report(self._directory, self._note)
