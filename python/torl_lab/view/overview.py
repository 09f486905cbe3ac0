"""The overview of runs: their state, curves over the steps, and the settings in which they differ."""

import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from torl.base.errors import ConfigError, RecordError
from torl.base.inputs import read_file
from torl.base.options import dotted_leaves, read_toml
from torl.base.removed import translated
from torl.run.display.series import values_of
from torl.run.records import metric_names as names
from torl.run.records.files import CONFIG_FILE, METRICS_FILE, SUMMARY_FILE
from torl.run.records.reading import read_metrics
from torl_lab.view.columns import IndexReader
from torl_lab.view.comparison import changes
from torl_lab.view.panels import Panel, RunRecords, figure_of, panels_of

_NOT_COMPARED: Final = ("run.directory", "run.resume")


class RunRecordsReader:
    """Reads the metrics and the configuration of a target, again when their files have changed. Thread-safe."""

    def __init__(self, reader: IndexReader) -> None:
        self.reader = reader
        self._lock = threading.Lock()
        self._stamp: object = None
        self._records = RunRecords(reader.target.label, [], {})
        self._error: str | None = None
        self._changes: tuple[int, list[dict[str, Any]]] = (-1, [])

    def stamp(self) -> list[Any]:
        """Return the state of the files: inodes, sizes and times, as JSON."""
        directory = self.reader.target.directory
        return [_stamp(directory / name) for name in (METRICS_FILE, CONFIG_FILE, SUMMARY_FILE)]

    def read(self) -> tuple[RunRecords, str | None]:
        """Return the records, which may be empty, and the reason why some cannot be read."""
        directory = self.reader.target.directory
        with self._lock:
            stamp = self.stamp()
            if stamp != self._stamp:
                self._stamp, self._error = stamp, None
                rows: Sequence[Mapping[str, Any]] = []
                config: Mapping[str, Any] = {}
                if self.reader.target.is_run:
                    try:
                        if os.path.lexists(directory / METRICS_FILE):
                            rows = read_metrics(directory)
                    except RecordError as error:
                        self._error = str(error)
                    try:
                        config = translated(read_toml(directory / CONFIG_FILE))
                    except ConfigError as error:
                        self._error = str(error)
                text = ""
                with suppress(OSError):
                    text = read_file(directory / CONFIG_FILE).decode("utf-8", errors="replace")
                self._records = RunRecords(self._records.label, rows, config, config_text=text)
            return self._records, self._error

    def changes(self) -> list[dict[str, Any]]:
        """Return the problems that were gained and lost (`history.changes`)."""
        revision = self.reader.columns().revision
        if self._changes[0] != revision:
            self._changes = revision, changes(self.reader)
        return self._changes[1]


def _stamp(path: Path) -> list[int]:
    try:
        found = path.stat()
    except OSError:
        return []
    return [found.st_ino, found.st_size, found.st_mtime_ns]


def describe_run(run: RunRecordsReader) -> dict[str, Any]:
    """Return the state of a target as JSON."""
    records, error = run.read()
    target, columns = run.reader.target, run.reader.columns()
    return summary(records) | {
        "path": str(target.origin or target.path),
        "is_run": target.is_run,
        "rows": len(columns),
        "sets": sorted(columns.sets.values()),
        "finished": (target.directory / SUMMARY_FILE).exists(),
        "error": error,
    }


def summary(run: RunRecords) -> dict[str, Any]:
    """Return the steps, times and main settings of a run as JSON."""
    steps, _ = values_of(run.rows, names.TIME_STEP)
    times = [row["time"] for row in run.rows if "time" in row]
    method = "fine-tuning" if "finetune" in run.config else _get(run.config, "algorithm", "estimator", "name")
    return {
        "run": run.label,
        "steps": len(steps),
        "planned": _get(run.config, "run", "steps"),
        "model": _get(run.config, "model", "path"),
        "method": method,
        "started": min(times, default=None),
        "written": max(times, default=None),
    }


def _get(tree: Any, *path: str) -> Any:
    for key in path:
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return tree


def curves(runs: Sequence[RunRecords]) -> list[dict[str, Any]]:
    """Return the panels that have data: title, note, and for each run the steps and values of its lines."""
    figures = (figure_of(panel, runs) for panel in panels_of(runs))
    return [figure for figure in figures if figure["lines"]]


def metric_curve(runs: Sequence[RunRecords], name: str) -> dict[str, Any]:
    """Return one metric as a figure. A run without it has no line."""
    metric = names.METRICS.get((names.split_evaluation(name) or ("", name))[1])
    note = "" if metric is None else metric.meaning
    return figure_of(Panel(name, note, {name: name}), runs)


def settings(runs: Sequence[RunRecords]) -> dict[str, Any]:
    """Return the configurations of runs as TOML, and the settings that differ with the value of each run or None."""
    flat = [dict(dotted_leaves(run.config)) for run in runs]
    keys = list(dict.fromkeys(key for each in flat for key in each if key not in _NOT_COMPARED))
    rows = [{"key": key, "values": [each.get(key) for each in flat]} for key in keys]
    return {
        "runs": [run.label for run in runs],
        "texts": [run.config_text for run in runs],
        "differences": [row for row in rows if any(value != row["values"][0] for value in row["values"])],
    }


def overview(runs: Sequence[RunRecordsReader]) -> dict[str, Any]:
    """Return the content of the overview."""
    records = [run.read()[0] for run in runs]
    return {
        "runs": [describe_run(run) for run in runs],
        "curves": curves(records),
        "changes": [{"run": run.reader.target.label, **change} for run in runs for change in run.changes()],
        "settings": settings([each for each, run in zip(records, runs, strict=True) if run.reader.target.is_run]),
        "metrics": sorted({name for each in records for row in each.rows for name in row} - {"step", "time"}),
    }
