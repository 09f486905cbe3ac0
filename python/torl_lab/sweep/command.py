"""The command line of `torl sweep`, and its table: final accuracies, and their differences from the first row."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from torl.base.errors import ConfigError, TorlError
from torl.base.runtime.processes.supervision import run_until_done
from torl.commands.command import reports_errors
from torl.run.config import TrainConfig
from torl.run.config.command_line import config_parser, parse_with_overrides
from torl.run.display.console import Console
from torl.run.display.series import accuracy_by_problem, values_of
from torl.run.records import metric_names as names
from torl.run.records.files import evaluation_files
from torl.run.records.reading import read_metrics
from torl_lab.evaluation.estimates import Accuracies, SeedMean, difference_over_seeds, mean_over_seeds
from torl_lab.evaluation.output import Table, markdown, write_tables
from torl_lab.report.comparison import WINDOW, write_comparison
from torl_lab.report.page import read_run
from torl_lab.sweep.grid import Combination, SweepRun, read_grid, sweep_runs, train_missing

_MEASURES = (names.CODE_RATIO, names.PASS_RATIO, names.CALLS_PER_TRAJECTORY, names.RESPONSE_TOKENS)
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
    if results := read_sweep(runs):
        table = sweep_table(results)
        write_tables(output, [table], as_json(results))
        pages = [read_run(run.label, run.directory) for run in runs if run.has_summary]
        write_comparison(pages, output / "comparison.html")
        print(markdown(table))
        print(f"wrote table.md, table.tex, results.json and comparison.html to {output}", flush=True)
    if failed:
        names = ", ".join(str(directory) for directory in failed)
        raise TorlError(f"{len(failed)} of {len(runs)} runs failed: {names}; the same command tries them again")


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

    def change(self, first: "CombinationResult", label: str) -> SeedMean | None:
        """Return the difference from the first combination; None for that one, and without a common seed."""
        others = first.accuracies.get(label, {})
        return None if self is first else difference_over_seeds(self.accuracies[label], others)


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
    values: dict[str, list[float]] = {}
    for run in runs:
        for label, files in evaluation_files(run.directory).items():
            accuracies.setdefault(label, {})[run.seed] = accuracy_by_problem(files[-1])
        rows = read_metrics(run.directory)
        for metric in _MEASURES:
            values.setdefault(metric.label, []).extend(values_of(rows, metric)[1][-WINDOW:])
    means = {label: fmean(each) for label, each in values.items() if each}
    return CombinationResult(runs[0].combination, accuracies, means)


def sweep_table(results: Sequence[CombinationResult]) -> Table:
    """Build the table. Differences are from the first combination, paired by seed and problem."""
    labels = list(dict.fromkeys(label for result in results for label in result.accuracies))
    columns = [column for label in labels for column in (label, f"{label} - first", "verdict")]
    is_one = max(result.seeds for result in results) == 1
    about = "problems: one seed says nothing of others" if is_one else "seeds (Student's t)"
    return Table(
        "Sweep",
        ("run", "seeds", *columns, *(metric.label for metric in _MEASURES)),
        tuple(_row(result, results[0], labels) for result in results),
        (
            "Final accuracy, %, and its difference from the first row on the same problems and seeds, with 95 % "
            f"intervals over {about}",
            f"Other columns: means over the last {WINDOW} training steps",
        ),
    )


def _row(result: CombinationResult, first: CombinationResult, labels: Sequence[str]) -> tuple[str, ...]:
    cells = [result.combination.label, str(result.seeds)]
    for label in labels:
        change = result.change(first, label) if label in result.accuracies else None
        cells.append(str(mean_over_seeds(result.accuracies[label])) if label in result.accuracies else "-")
        cells += ["-", ""] if change is None else [f"{'+' * (change.value >= 0)}{change}", change.verdict]
    return (*cells, *(metric.show(result.metrics.get(metric.label)) for metric in _MEASURES))


def as_json(results: Sequence[CombinationResult]) -> list[dict[str, Any]]:
    """Return all numbers as plain JSON. Accuracies are between 0 and 1."""
    return [
        {
            "settings": dict(result.combination.settings),
            "seeds": result.seeds,
            "accuracy": {label: asdict(mean_over_seeds(found)) for label, found in result.accuracies.items()},
            "difference": {
                label: asdict(change) for label in result.accuracies if (change := result.change(results[0], label))
            },
            "training": dict(result.metrics),
        }
        for result in results
    ]
