"""The table of a sweep: final accuracies of each combination, and their differences from the first."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from torl.run.display.series import accuracy_by_problem, values_of
from torl.run.records import metric_names as names
from torl.run.records.files import evaluation_files
from torl.run.records.reading import read_metrics
from torl_lab.evaluation.output import Table
from torl_lab.report.comparison import WINDOW
from torl_lab.sweep.grid import Combination, SweepRun
from torl_lab.sweep.seeds import Accuracies, SeedMean, difference_over_seeds, mean_over_seeds

_MEASURES = (names.CODE_RATIO, names.PASS_RATIO, names.CALLS_PER_TRAJECTORY, names.RESPONSE_TOKENS)


@dataclass(frozen=True, slots=True)
class CombinationResult:
    """The finished runs of a combination."""

    combination: Combination
    accuracies: Mapping[str, Accuracies]
    """Final accuracies by evaluation, "heldout" or "heldout.greedy"."""
    metrics: Mapping[str, float]
    """Means over the last training steps and over seeds, by the label of the metric."""

    @property
    def seeds(self) -> int:
        """Number of finished runs."""
        return max((len(each) for each in self.accuracies.values()), default=0)


def read_sweep(runs: Sequence[SweepRun]) -> list[CombinationResult]:
    """Read the finished runs, in the order of the grid. Combinations without one are left out.

    Raises:
        RecordError: Records are damaged.
    """
    finished: dict[str, list[SweepRun]] = {}
    for run in runs:
        if run.has_summary:
            finished.setdefault(run.combination.name, []).append(run)
    return [_read(each) for each in finished.values()]


def _read(runs: Sequence[SweepRun]) -> CombinationResult:
    accuracies: dict[str, dict[int, Mapping[str, float]]] = {}
    values: dict[names.Metric, list[float]] = {}
    for run in runs:
        for label, files in evaluation_files(run.directory).items():
            accuracies.setdefault(label, {})[run.seed] = accuracy_by_problem(files[-1])
        rows = read_metrics(run.directory)
        for metric in _MEASURES:
            values.setdefault(metric, []).extend(values_of(rows, metric)[1][-WINDOW:])
    means = {metric.label: fmean(each) for metric, each in values.items() if each}
    return CombinationResult(runs[0].combination, accuracies, means)


def sweep_table(results: Sequence[CombinationResult]) -> Table:
    """Build the table. Differences are from the first combination, paired by seed and problem."""
    first = results[0]
    labels = list(dict.fromkeys(label for result in results for label in result.accuracies))
    columns = ["run", "seeds"]
    for label in labels:
        columns += [label, f"{label} - first", "verdict"]
    rows = [_row(result, first, labels) for result in results]
    one_seed = max(result.seeds for result in results) == 1
    notes = (
        "Final accuracy, %, and its difference from the first row on the same problems and seeds, with 95 % intervals "
        + ("over problems: one seed says nothing of others" if one_seed else "over seeds (Student's t)"),
        f"Other columns: means over the last {WINDOW} training steps",
    )
    return Table("Sweep", (*columns, *(metric.label for metric in _MEASURES)), tuple(rows), notes)


def _row(result: CombinationResult, first: CombinationResult, labels: Sequence[str]) -> tuple[str, ...]:
    cells = [result.combination.label, str(result.seeds)]
    for label in labels:
        found, change = _measured(result, first, label)
        cells.append("-" if found is None else str(found))
        cells += ["-", ""] if change is None else [f"{'+' * (change.value >= 0)}{change}", change.verdict]
    cells += [metric.show(result.metrics.get(metric.label)) for metric in _MEASURES]
    return tuple(cells)


def _measured(
    result: CombinationResult, first: CombinationResult, label: str
) -> tuple[SeedMean | None, SeedMean | None]:
    accuracies = result.accuracies.get(label)
    if not accuracies:
        return None, None
    others = first.accuracies.get(label, {})
    return mean_over_seeds(accuracies), None if result is first else difference_over_seeds(accuracies, others)


def as_json(results: Sequence[CombinationResult]) -> str:
    """Return all numbers as JSON. Accuracies are between 0 and 1."""
    rows: list[dict[str, Any]] = []
    for result in results:
        measured = {label: _measured(result, results[0], label) for label in result.accuracies}
        rows.append(
            {
                "settings": dict(result.combination.settings),
                "seeds": result.seeds,
                "accuracy": {label: _encoded(found) for label, (found, _) in measured.items()},
                "difference": {label: _encoded(change) for label, (_, change) in measured.items() if change},
                "training": dict(result.metrics),
            }
        )
    return json.dumps(rows, indent=1) + "\n"


def _encoded(mean: SeedMean | None) -> dict[str, float | None] | None:
    return None if mean is None else {"value": mean.value, "half_width": mean.half_width}


def comparison_labels(runs: Sequence[SweepRun]) -> dict[str, Path]:
    """Return the directories of the finished runs by their labels on the page of several runs."""
    return {f"{run.combination.label}, seed {run.seed}": run.directory for run in runs if run.has_summary}
