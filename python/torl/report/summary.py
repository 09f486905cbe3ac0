"""The summary of a run."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torl.records import metric_names as names
from torl.records.files import REPORT_FILE, SUMMARY_FILE, record_errors
from torl.records.reading import read_metrics

_MEASURES = {
    "accuracy": names.ACCURACY,
    "greedy_accuracy": names.GREEDY_ACCURACY,
    "code_ratio": names.CODE_RATIO,
    "pass_ratio": names.PASS_RATIO,
}
_TIMED = (names.TIME_STEP, names.TIME_EVALUATION, names.TIME_CHECKPOINT)


def write_summary(directory: Path) -> dict[str, Any]:
    """Write the summary of a run to `summary.json`, and return it.

    Raises:
        RecordError: The records cannot be read, or the summary cannot be written.
    """
    summary = summarize(directory, read_metrics(directory))
    path = directory / SUMMARY_FILE
    with record_errors(path):
        path.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    return summary


def summarize(directory: Path, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Summarize the metrics of a run.

    The first evaluation set is at the top level (`accuracy_before`, `accuracy_after`, ...), every set under
    `evaluation`. A ratio without a denominator is None. `train_seconds` counts steps, evaluations and checkpoints. With
    validation examples, their loss is at the top level as well.
    """
    by_set = {
        name: {
            f"{measure}_{when}": evaluations[index].get(metric)
            for measure, metric in _MEASURES.items()
            for when, index in (("before", 0), ("after", -1))
        }
        for name, evaluations in _evaluations(rows).items()
    }
    losses = [row[names.VALIDATION_LOSS] for row in rows if names.VALIDATION_LOSS in row]
    return {
        **next(iter(by_set.values()), {}),
        **({"validation_loss_before": losses[0], "validation_loss_after": losses[-1]} if losses else {}),
        "train_seconds": round(sum(row.get(name, 0.0) for row in rows for name in _TIMED), 1),
        "report": str(directory / REPORT_FILE),
        "evaluation": by_set,
    }


def _evaluations(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the metrics of each evaluation of each set, by their plain names."""
    evaluations: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        of_row: dict[str, dict[str, Any]] = {}
        for key, value in row.items():
            if (part := names.split_evaluation(key)) is not None:
                of_row.setdefault(part[0], {})[part[1]] = value
        for name, metrics in of_row.items():
            evaluations.setdefault(name, []).append(metrics)
    return evaluations
