"""Naive values of a run's other records: its summary, and settings that change with the step."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torl.run.config import LearningConfig
from torl.run.config.schedule import value_in
from torl.run.records import metric_names as names

_TIMES = (names.TIME_STEP, names.TIME_EVALUATION, names.TIME_CHECKPOINT)
_MEASURES = {
    "accuracy": names.ACCURACY,
    "greedy_accuracy": names.GREEDY_ACCURACY,
    "code_ratio": names.CODE_RATIO,
    "pass_ratio": names.PASS_RATIO,
}


def naive_summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the values of `summary.json` that follow from the rows of metrics: all but the path of the report."""
    sets = list(dict.fromkeys(found[0] for row in rows for key in row if (found := names.split_evaluation(key))))
    by_set = {name: _before_and_after(rows, name) for name in sets}
    summary: dict[str, Any] = dict(by_set[sets[0]]) if sets else {}
    if losses := {row["step"]: row[names.VALIDATION_LOSS] for row in rows if names.VALIDATION_LOSS in row}:
        summary |= {"validation_loss_before": losses.get(0), "validation_loss_after": losses[max(losses)]}
    seconds = [row[name] for row in rows for name in _TIMES if name in row]
    return {**summary, "train_seconds": round(sum(seconds), 1), "evaluation": by_set}


def _before_and_after(rows: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any]:
    """Return the measures of an evaluation set before the first step, and of its last evaluation."""
    own = [row for row in rows if any((names.split_evaluation(key) or ("",))[0] == name for key in row)]
    last = max(row["step"] for row in own)
    found: dict[str, Any] = {}
    for measure, metric in _MEASURES.items():
        for when, step in (("before", 0), ("after", last)):
            key = names.evaluation_name(name, metric)
            values = [row[key] for row in own if row["step"] == step and key in row]
            found[f"{measure}_{when}"] = values[-1] if values else None
    return found


def naive_scheduled(config: LearningConfig, step: int) -> dict[str, float]:
    """Return the values that the settings with a schedule have at a step, by their dotted names.

    A schedule is a list of pairs of a step and the value from it on, where the configuration holds a number.
    """
    found = {}
    for name, pairs in _lists_of_pairs(config.model_dump(mode="json"), ""):
        if isinstance(value_in(config, tuple(name.split("."))), int | float):
            found[name] = [value for first, value in pairs if first <= step][-1]
    return found


def _lists_of_pairs(tree: Mapping[str, Any], start: str) -> Iterator[tuple[str, list[Any]]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _lists_of_pairs(value, f"{start}{key}.")
        elif isinstance(value, list) and value and all(isinstance(each, list) and len(each) == 2 for each in value):
            yield f"{start}{key}", value
