"""The directory that holds everything a run writes: opening it, and the summary of what is in it."""

import fcntl
import json
import os
from pathlib import Path
from typing import Any

from torl.config import TrainConfig
from torl.errors import ConfigError, RecordError
from torl.metrics.records import CONFIG_FILE, REPORT_FILE
from torl.settings import dump_config

SUMMARY_FILE = "summary.json"


def open_run_directory(config: TrainConfig) -> Path:
    """Make the directory, or find it again for a resumed run; write the resolved configuration into it.

    The directory stays locked until the process ends, so that no second process writes the same run.

    Raises:
        ConfigError: it holds a run that is not to be resumed, or is another process's.
        RecordError: it cannot be written.
    """
    directory = config.run.directory
    path = directory / CONFIG_FILE
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _lock(directory)
        if path.exists() and not config.run.resume:
            raise ConfigError(
                f"{directory} holds a run: go on with it (--run.resume), or choose another place (--run.directory)"
            )
        (directory / "logs").mkdir(exist_ok=True)
        temporary = path.with_suffix(".partial")
        temporary.write_text(dump_config(config), encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise RecordError(f"{error.filename or directory}: cannot be written: {error.strerror}") from error
    return directory


def _lock(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)  # open, and the lock with it, until the process ends
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ConfigError(f"{directory} is being written by another process") from None


def write_summary(directory: Path) -> dict[str, Any]:
    """Measure the run from its own records, write `summary.json`, and return it.

    The first evaluation set stands at the top level (`accuracy_before`, `accuracy_after`, ...), every set under
    `evaluation`. A ratio without a denominator is None. `train_seconds` counts steps, evaluations and checkpoints.

    Raises:
        RecordError: the records cannot be read or the summary cannot be written.
    """
    from torl.metrics import names
    from torl.metrics.records import read_metrics

    measures = {
        "accuracy": names.ACCURACY,
        "greedy_accuracy": names.GREEDY_ACCURACY,
        "code_ratio": names.CODE_RATIO,
        "pass_ratio": names.PASS_RATIO,
    }
    rows = read_metrics(directory)
    evaluations: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        of_row: dict[str, dict[str, Any]] = {}
        for key, value in row.items():
            if (found := names.split_evaluation(key)) is not None:
                of_row.setdefault(found[0], {})[found[1]] = value
        for name, metrics in of_row.items():
            evaluations.setdefault(name, []).append(metrics)
    by_set = {
        name: {
            f"{measure}_{when}": found[index].get(metric)
            for measure, metric in measures.items()
            for when, index in (("before", 0), ("after", -1))
        }
        for name, found in evaluations.items()
    }
    timed = (names.TIME_STEP, names.TIME_EVALUATION, names.TIME_CHECKPOINT)
    summary = {
        **next(iter(by_set.values()), {}),
        "train_seconds": round(sum(row.get(name, 0.0) for row in rows for name in timed), 1),
        "report": str(directory / REPORT_FILE),
        "evaluation": by_set,
    }
    try:
        (directory / SUMMARY_FILE).write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise RecordError(f"{directory / SUMMARY_FILE}: cannot be written: {error.strerror}") from error
    return summary
