"""The command line of `torl sweep`, and its table: final accuracies, and their differences from the first row."""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from torl.base.errors import ConfigError, TorlError
from torl.base.runtime.processes.supervision import run_until_done
from torl.commands.command import reports_errors
from torl.run.config import TrainConfig
from torl.run.config.command_line import config_parser, parse_with_overrides
from torl.run.display.changes import accuracy_by_problem
from torl.run.display.console import Console
from torl.run.display.series import values_of
from torl.run.records import metric_names as names
from torl.run.records.files import atomic_write, evaluation_files
from torl.run.records.reading import read_metrics
from torl_lab.evaluation.estimates import Accuracies, SeedMean, difference_over_seeds, mean_over_seeds
from torl_lab.evaluation.output import Table, latex, markdown
from torl_lab.report.comparison import WINDOW, write_comparison
from torl_lab.report.page import read_run
from torl_lab.sweep.grid import Combination, SweepRun, read_grid, sweep_runs, train_missing

_PROGRAM = "torl sweep"
_DESCRIPTION = (
    "Train a run for each combination of settings and seed, one after another, and write one table with paired "
    "differences. The same command resumes a sweep that was killed. A run that fails does not stop the others."
)


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status: 0, 1 if a run failed, 2 for an invalid configuration."""
    options, runs = read_arguments(sys.argv[1:] if arguments is None else arguments)
    return run_until_done(sweep(runs, options.output))


def read_arguments(argv: Sequence[str]) -> tuple[argparse.Namespace, list[SweepRun]]:
    """Parse a command line, and check the configuration of every run.

    Raises:
        ConfigError: An argument or a configuration is invalid.
    """
    parser = config_parser(_PROGRAM, _DESCRIPTION, "--grid SETTING=VALUE,VALUE... ")
    parser.add_argument(
        "--grid", metavar="SETTING=VALUE,VALUE", nargs="+", default=[], help="settings and their values"
    )
    parser.add_argument("--seeds", type=int, default=1, metavar="COUNT", help="number of seeds (default: %(default)s)")
    parser.add_argument(
        "--output", type=Path, default=Path("runs/sweep"), metavar="DIRECTORY", help="default: %(default)s"
    )
    options, overrides = parse_with_overrides(parser, TrainConfig, _PROGRAM, argv)
    if not options.grid:
        raise ConfigError(f"{_PROGRAM}: --grid is required, such as --grid rollout.max_tool_calls=0,1,2")
    if "run.directory" in overrides:
        raise ConfigError(f"{_PROGRAM}: --run.directory cannot be set: each run has a directory in --output")
    if options.seeds < 1:
        raise ConfigError(f"--seeds = {options.seeds} must be at least 1")
    try:
        options.output = options.output.expanduser()  # shells expand no ~ after =
    except RuntimeError as error:
        raise ConfigError(f"--output {options.output}: {error}") from error
    texts = {name: str(value) for name, value in overrides.items()}
    runs = list(sweep_runs(options.config, read_grid(options.grid), options.seeds, options.output, texts))
    if options.show:
        print("\n".join(f"torl train {' '.join(run.words)}" for run in runs))
        raise SystemExit(0)
    return options, runs


async def sweep(runs: Sequence[SweepRun], output: Path) -> None:
    """Train the missing runs, and write and print the table.

    Raises:
        ConfigError: A directory contains a run with other settings.
        TorlError: A run failed. The table has all others.
    """
    with Console() as console:
        failed = await train_missing(runs, console)
    results = read_sweep(runs)
    if results:
        table = sweep_table(results)
        for name, text in (
            ("table.md", markdown(table)),
            ("table.tex", latex(table)),
            ("results.json", as_json(results)),
        ):
            with atomic_write(output / name) as file:
                file.write(text.encode("utf-8"))
        pages = [read_run(label, directory) for label, directory in comparison_labels(runs).items()]
        write_comparison(pages, output / "comparison.html")
        print(markdown(table))
        print(f"wrote table.md, table.tex, results.json and comparison.html to {output}", flush=True)
    if failed:
        names = ", ".join(str(directory) for directory in failed)
        raise TorlError(f"{len(failed)} of {len(runs)} runs failed: {names}; the same command tries them again")


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
