"""The summary of a run."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torl.run.records import metric_names as names
from torl.run.records.files import REPORT_FILE, SUMMARY_FILE, atomic_write
from torl.run.records.reading import read_metrics

_MEASURES = (names.ACCURACY, names.GREEDY_ACCURACY, names.CODE_RATIO, names.PASS_RATIO)
_TIMED = (names.TIME_STEP, names.TIME_EVALUATION, names.TIME_CHECKPOINT)


def write_summary(directory: Path) -> dict[str, Any]:
    """Write the summary of a run to `summary.json`, and return it.

    Raises:
        RecordError: The records cannot be read, or the summary cannot be written.
    """
    summary = summarize(directory, read_metrics(directory))
    with atomic_write(directory / SUMMARY_FILE) as file:  # its existence means that the run has finished
        file.write(json.dumps(summary, indent=1).encode() + b"\n")
    return summary


def summarize(directory: Path, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Summarize the metrics of a run.

    The first evaluation set is at the top level (`accuracy_before`, `accuracy_after`, ...), every set under
    `evaluation`. A measure before training is None without an evaluation there, and a ratio without a denominator.
    `train_seconds` counts steps, evaluations and checkpoints. With validation examples, their loss is at the top level
    as well.
    """
    by_set = {
        name: {
            f"{metric.rpartition('/')[2]}_{when}": metrics.get(metric)
            for metric in _MEASURES
            for when, metrics in (("before", evaluations.get(0, {})), ("after", evaluations[max(evaluations)]))
        }
        for name, evaluations in _evaluations(rows).items()
    }
    losses = {row["step"]: row[names.VALIDATION_LOSS] for row in rows if names.VALIDATION_LOSS in row}
    validation = (
        {"validation_loss_before": losses.get(0), "validation_loss_after": losses[max(losses)]} if losses else {}
    )
    return {
        **next(iter(by_set.values()), {}),
        **validation,
        "train_seconds": round(sum(row.get(name, 0.0) for row in rows for name in _TIMED), 1),
        "report": str(directory / REPORT_FILE),
        "evaluation": by_set,
    }


def _evaluations(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[int, dict[str, Any]]]:
    """Return the metrics of each evaluation of each set by its step, by their plain names."""
    evaluations: dict[str, dict[int, dict[str, Any]]] = {}
    for row in rows:
        for key, value in row.items():
            if (part := names.split_evaluation(key)) is not None:
                evaluations.setdefault(part[0], {}).setdefault(row["step"], {})[part[1]] = value
    return evaluations
