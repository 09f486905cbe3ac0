"""Runs of the demo that fail, each by a change of its settings: their curves, and what `torl doctor` says of them.

    pip install matplotlib
    python -m benchmarks.demo.collapses [CASE ...] [--steps 40] [--jobs 1] [--output runs/collapses] [--curves FILE]

Finished runs are not repeated, and the table has all of them. Accuracy is over the first 64 held-out problems, four
samples each at temperature 1. Entropy is a mean over the sampled tokens, in nats.
"""

import argparse
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import torl
from benchmarks.demo.curve import GREY, finish_figure, start_figure
from benchmarks.demo.table import threads, train
from benchmarks.doctors.exhibits.scoring import doctor
from torl.base.types import OutcomeStatus
from torl.run.display.series import values_of
from torl.run.records import metric_names as names
from torl.run.records.files import SUMMARY_FILE
from torl.run.records.reading import read_metrics

SETTINGS: Mapping[str, object] = {
    "rollout.max_response_tokens": 128,
    "learner.learning_rate": 2e-4,
    "evaluation.every_steps": 0,
    "evaluation.max_problems": 64,
    "evaluation.samples_per_problem": 4,
    "evaluation.greedy": False,
    "checkpoint.every_steps": 0,
}
CURVES = {names.ACCURACY: "#3b82f6", names.CODE_RATIO: "#f59e0b", names.ENTROPY: "#a855f7"}
IN_TABLE = (names.CODE_RATIO, names.ENTROPY)
COLUMNS = 3
HELD_OUT = names.evaluation_name("heldout", names.ACCURACY)


@dataclass(frozen=True, slots=True)
class Case:
    """A run that differs from the first case by settings."""

    title: str
    settings: Mapping[str, object] = field(default_factory=dict)


def ran(trajectory: torl.Trajectory) -> float:
    """A reward for code that runs, regardless of its output and of the answer."""
    return float(any(call.outcome.status == OutcomeStatus.OK for call in trajectory.tool_calls))


CASES: Mapping[str, Case] = {
    "healthy": Case("nothing changed"),
    "rate": Case("learning rate of 5e-3 instead of 2e-4", {"learner.learning_rate": 5e-3}),
    "reused": Case(
        "64 updates on each batch, without a clip",
        {"algorithm.policy_loss": "reinforce", "algorithm.mini_batches": 16, "algorithm.epochs": 4},
    ),
    "stale": Case(
        "responses up to eight steps old, at a rate of 1e-3",
        {
            "rollout.max_staleness": 8,
            "algorithm.importance_correction": "tis",
            "learner.learning_rate": 1e-3,
            "learner.max_logprob_gap": 1000.0,
        },
    ),
    "room": Case("32 tokens for a response", {"rollout.max_response_tokens": 32}),
    "cold": Case("temperature of 0.3", {"rollout.temperature": 0.3}),
    "proxy": Case(
        "a reward for code that runs",
        {"reward.parts": '{ ran = { name = "benchmarks.demo.collapses:ran" } }', "evaluation.reward": "math"},
    ),
    "leash": Case("KL coefficient of 10", {"algorithm.kl.coefficient": 10.0}),
    "other results": Case("results of other calls", {"ablation.shuffle": "observations"}),
}


def main() -> None:
    """Run the missing cases, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", metavar="CASE", nargs="*", help=f"cases to run; all unless given: {', '.join(CASES)}")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--jobs", type=int, default=1, help="runs at once, with one thread each where more than one")
    parser.add_argument("--output", type=Path, default=Path("runs/collapses"))
    parser.add_argument("--curves", type=Path, help="SVG file for the curves of the finished runs")
    options = parser.parse_args()
    if unknown := set(options.cases) - set(CASES):
        parser.error(f"no such case: {', '.join(sorted(unknown))}")

    def run(name: str) -> None:
        train(
            options.output / name,
            {"run.steps": options.steps, **SETTINGS, **threads(options.jobs), **CASES[name].settings},
        )

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(run, options.cases or CASES))
    finished = {name: options.output / name for name in CASES if (options.output / name / SUMMARY_FILE).exists()}
    print("\n".join(lines(finished)))
    if options.curves is not None:
        draw(finished, options.curves)


def lines(runs: Mapping[str, Path]) -> list[str]:
    """Format the table: the first and the last five steps of a run, its evaluations, and the doctor's findings."""
    titles = " | ".join(metric.label for metric in IN_TABLE)
    table = [f"| changed | held-out accuracy | {titles} | `torl doctor` (step) |", "|---" * 5 + "|"]
    for name, directory in runs.items():
        rows = read_metrics(directory)
        cells = [CASES[name].title]
        _, held_out = values_of(rows, HELD_OUT)
        cells.append(f"{held_out[0]:.2f} → {held_out[-1]:.2f}")
        for metric in IN_TABLE:
            _, values = values_of(rows, metric)
            cells.append(f"{sum(values[:5]) / 5:.2f} → {sum(values[-5:]) / 5:.2f}")
        cells.append(", ".join(f"`{check}` ({step})" for check, step in doctor(directory).items()) or "-")
        table.append(f"| {' | '.join(cells)} |")
    return table


def draw(runs: Mapping[str, Path], output: Path) -> None:
    """Draw a panel for each run; points are the accuracy on held-out problems. Values above 1 are cut."""
    rows = -(-len(runs) // COLUMNS)
    figure, panels = start_figure(COLUMNS, (3.2 * COLUMNS + 1.8, 2.3 * rows), rows)
    for axes in panels.flat[len(runs) :]:
        axes.remove()
    for axes, (name, directory) in zip(panels.flat, runs.items(), strict=False):
        metrics = read_metrics(directory)
        axes.set_title(CASES[name].title, color=GREY, fontsize=9)
        for metric, color in CURVES.items():
            steps, values = values_of(metrics, metric)
            axes.plot(steps, values, color=color, label=metric.label)
        steps, values = values_of(metrics, HELD_OUT)
        axes.plot(steps, values, "o--", color="#ef4444", markersize=4, label="held-out accuracy")
    finish_figure(figure, output)


if __name__ == "__main__":
    main()
