"""The outcome of a run: `summary.json`, and a dozen lines on changes, costs, losses and the next thing to do."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from torl.run.display.series import AccuracyChange, Row, accuracy_changes, evaluation_sets, values_of
from torl.run.records import metric_names as names
from torl.run.records.files import REPORT_FILE, SUMMARY_FILE, atomic_write
from torl.run.records.reading import read_metrics
from torl.run.records.thresholds import (
    COLLAPSED_ENTROPY,
    COMPARED_STEPS,
    EQUAL_REWARDS,
    LONGER_RESPONSES,
    MORE_ENTROPY,
    TRUNCATED,
)

_CHANGES: Final = (names.CODE_RATIO, names.PASS_RATIO, names.RESPONSE_TOKENS, names.ENTROPY, names.LOSS)
_PARTS: Final = (names.TIME_WAIT, names.TIME_LEARN, names.TIME_SYNC)
_LOSSES: Final = (
    (names.FAILED_EPISODES.label, names.FAILED_EPISODES),
    ("groups with equal rewards", names.dropped_groups("zero_variance")),
    ("groups out of the accuracy range", names.dropped_groups("accuracy_outside")),
    (names.SELECTION_SURPLUS.label, names.SELECTION_SURPLUS),
    (names.SELECTION_MISSING.label, names.SELECTION_MISSING),
)


def describe_outcome(run_directory: Path) -> list[str]:
    """Return the outcome of a run, finished or running, from its records; empty before its first step.

    Raises:
        RecordError: The records are missing or damaged.
    """
    return outcome_of(read_metrics(run_directory), accuracy_changes(run_directory))


def outcome_of(rows: Sequence[Row], changes: Mapping[str, AccuracyChange]) -> list[str]:
    """Return the outcome of a run from its metrics and the changes of its accuracies; empty before its first step."""
    steps = [row for row in rows if row.get(names.TIME_STEP) is not None]
    if not steps:
        return []
    lines = [*_accuracies(rows, changes), *_changes(steps), _cost(rows, steps), _lost(steps)]
    return [*lines, *(f"next: {advice}" for advice in _advice(rows, steps, changes))]


def _accuracies(rows: Sequence[Row], changes: Mapping[str, AccuracyChange]) -> Iterator[str]:
    """Yield a line for each evaluation set, with the interval where the same problems were played twice."""
    for metric, label in ((names.ACCURACY, ""), (names.GREEDY_ACCURACY, ".greedy")):
        for name, values in _evaluations(rows, metric).items():
            title = f"{name}, greedy" if label else name
            change = changes.get(f"{name}{label}")
            width = f" ± {change.half_width:.3f}" if change and change.half_width is not None else ""
            before, after = values[0][1], values[-1][1]
            last = f" -> {after:.3f} ({after - before:+.3f}{width})" if len(values) > 1 else ""
            yield f"{title}: accuracy {before:.3f}{last}"
    _, losses = values_of(rows, names.VALIDATION_LOSS)
    if losses:
        shown = (names.VALIDATION_LOSS.show(loss) for loss in (losses[0], losses[-1])[-len(losses) :])
        yield f"{names.VALIDATION_LOSS.label} {' -> '.join(shown)}"


def _evaluations(rows: Sequence[Row], metric: str) -> dict[str, list[tuple[int, float]]]:
    """Return steps and values of a metric in the evaluations of each set that has it."""
    found = {
        name: list(zip(*values_of(rows, names.evaluation_name(name, metric)), strict=True))
        for name in evaluation_sets(rows)
    }
    return {name: values for name, values in found.items() if values}


def _changes(steps: Sequence[Row]) -> Iterator[str]:
    """Yield the metrics of the first and the last training steps in one line."""
    count = min(COMPARED_STEPS, len(steps) // 2)  # no step is at both ends
    ends = (steps[:count], steps[-count:]) if count else (steps,)
    pieces = []
    for metric in _CHANGES:
        means = [_mean(rows, metric) for rows in ends]
        if any(mean is not None for mean in means):
            pieces.append(f"{metric.label} {' -> '.join(map(metric.show, means))}")
    if pieces:
        which = f" (first and last {count} steps)" if count > 1 else ""
        yield f"training: {', '.join(pieces)}{which}"


def _cost(rows: Sequence[Row], steps: Sequence[Row]) -> str:
    seconds = _total(steps, names.TIME_STEP)
    shares = [f"{each.short} {_total(steps, each) / seconds:.0%}" for each in _PARTS if seconds and each in steps[-1]]
    others = (names.TIME_EVALUATION, names.TIME_CHECKPOINT)
    more = [f"{each.label} {total:.0f} s" for each in others if (total := _total(rows, each)) >= 0.5]
    tokens = _total(steps, names.TRAINED_TOKENS)
    rate = f", {tokens:,.0f} trained tokens ({tokens / seconds:,.0f} per second)" if seconds else ""
    parts = f" ({', '.join([*shares, *more])})" if shares or more else ""
    return f"cost: {len(steps)} step{'s' * (len(steps) != 1)} in {seconds:.0f} s{parts}{rate}"


def _lost(steps: Sequence[Row]) -> str:
    lost = [f"{total:.0f} {label}" for label, name in _LOSSES if (total := _total(steps, name))]
    masked = sum(value or 0 for row in steps for name, value in row.items() if name in names.masked)
    if masked:
        lost.append(f"{masked:.0f} masked responses")
    skipped = sum(names.LOSS not in row for row in steps)
    if skipped:
        lost.append(f"{skipped} steps without an update")
    return f"lost: {', '.join(lost) or 'nothing'}"


def _advice(rows: Sequence[Row], steps: Sequence[Row], changes: Mapping[str, AccuracyChange]) -> Iterator[str]:
    last = steps[-COMPARED_STEPS:]
    accuracy = _mean(last, names.ACCURACY)
    uniform = _mean(last, names.UNIFORM_GROUPS)
    if uniform is not None and uniform > EQUAL_REWARDS.value and accuracy is not None:
        which = "harder problems" if accuracy > 0.5 else "easier problems, or a warm start"
        yield f"{uniform:.0%} of the last groups have equal rewards: {which} (selection, data.train)"
    if (truncated := _mean(last, names.TRUNCATED)) is not None and truncated > TRUNCATED.value:
        yield f"{truncated:.0%} of the last responses are cut: {LONGER_RESPONSES}"
    first_entropy, entropy = _mean(steps[:COMPARED_STEPS], names.ENTROPY), _mean(last, names.ENTROPY)
    rising = list(_rising(rows))
    is_sampled = accuracy is not None  # a fine-tuned model is meant to become sure of its examples
    if (
        is_sampled
        and first_entropy
        and entropy is not None
        and entropy < COLLAPSED_ENTROPY.value * first_entropy
        and not rising
    ):
        yield f"entropy fell below a tenth and accuracy no longer rises: {MORE_ENTROPY}"
    for name, best_step, best, final in _fallen(rows, changes):
        best_was = f"{name} was best after step {best_step} ({best:.3f}, now {final:.3f})"
        yield f"{best_was}: keep it (checkpoint.keep_best, and a checkpoint at each evaluation)"
    if rising:
        yield f"accuracy still rises on {', '.join(rising)}: more steps (run.steps, --run.resume true)"


def _rising(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the sets whose last evaluation is the best of at least three."""
    for name, values in _evaluations(rows, names.ACCURACY).items():
        if len(values) > 2 and values[-1][1] > max(value for _, value in values[:-1]):
            yield name


def _fallen(rows: Sequence[Row], changes: Mapping[str, AccuracyChange]) -> Iterator[tuple[str, int, float, float]]:
    """Yield the sets whose accuracy fell from its best by more than the interval of a change."""
    for name, values in _evaluations(rows, names.ACCURACY).items():
        change = changes.get(name)
        step, best = max(values, key=lambda value: value[1])
        final = values[-1][1]
        if change is not None and change.half_width is not None and best - final > change.half_width:
            yield name, step, best, final


def _mean(rows: Sequence[Row], name: str) -> float | None:
    _, values = values_of(rows, name)
    return fmean(values) if values else None


def _total(rows: Sequence[Row], name: str) -> float:
    return float(sum(values_of(rows, name)[1]))


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
        for name, evaluations in _evaluations_by_set(rows).items()
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


def _evaluations_by_set(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[int, dict[str, Any]]]:
    """Return the metrics of each evaluation of each set by its step, by their plain names."""
    evaluations: dict[str, dict[int, dict[str, Any]]] = {}
    for row in rows:
        for key, value in row.items():
            if (part := names.split_evaluation(key)) is not None:
                evaluations.setdefault(part[0], {}).setdefault(row["step"], {})[part[1]] = value
    return evaluations
