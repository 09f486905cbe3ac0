"""The demo trained by every algorithm, in both formats, with 0 to 4 calls: the small twin of each preset, and a table.

    python benchmarks/algorithm_table.py [ROW ...] [--seeds 0 1 2] [--steps 25] [--jobs 1] [--markdown FILE]

Each row is one `python -m torl.train demo` per seed with the settings of `algorithm_rows.py`. Runs that are already
there are not repeated, so that a table can be cut short and resumed; the table contains all finished runs of all rows.
Accuracy is over the first 128 held-out problems, four samples each at temperature 1. ± is the interval of 95 % over
seeds (Student's t), or over problems for a single seed; differences are paired by seed and problem, and a verdict other
than "no difference seen" has an interval without 0. Prints the table in Markdown and, on the last line, JSON.
"""

import argparse
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import fmean as mean

from algorithm_rows import ROWS, SETTINGS, base_of
from demo_table import train

from torl.apps.sweep.seeds import difference_over_seeds, mean_over_seeds
from torl.records import metric_names as names
from torl.records.files import evaluation_files
from torl.records.reading import read_metrics
from torl.report.changes import accuracy_by_problem


@dataclass(frozen=True, slots=True)
class Measured:
    """One finished run."""

    problems: Mapping[str, float]  # accuracy of each held-out problem after training
    accuracy_before: float
    accuracy: float
    code_ratio: float
    calls: float
    pass_ratio: float | None
    seconds: float


Row = Mapping[int, Measured]
"""The finished runs of a row by seed."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", metavar="ROW", nargs="*", help=f"which to train; all unless given: {', '.join(ROWS)}")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--jobs", type=int, default=1, help="runs at once, with one thread each where more than one")
    parser.add_argument("--output", type=Path, default=Path("runs/algorithm_table"))
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    options = parser.parse_args()
    if unknown := set(options.rows) - set(ROWS):
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    threads = {"engine.cpu_threads": 1, "learner.cpu_threads": 1} if options.jobs > 1 else {}

    def run(seed: int, name: str) -> None:
        settings = {"run.seed": seed, "run.steps": options.steps, **SETTINGS, **threads, **ROWS[name][1]}
        train(options.output / f"{name}_seed_{seed}", settings)

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(lambda wanted: run(*wanted), product(options.seeds, options.rows or ROWS)))
    found = {name: runs for name in ROWS if (runs := finished(options.output, name))}
    table = "\n".join(lines(found))
    print(table)
    if options.markdown is not None:
        options.markdown.write_text(table + "\n", encoding="utf-8")
    print(json.dumps({name: {seed: as_json(run) for seed, run in runs.items()} for name, runs in found.items()}))


def finished(output: Path, name: str) -> Row:
    """The finished runs of a row, by seed."""
    summaries = output.glob(f"{name}_seed_[0-9]*/summary.json")
    runs = {int(path.parent.name.removeprefix(f"{name}_seed_")): path.parent for path in summaries}
    return {seed: measured(runs[seed]) for seed in sorted(runs)}


def measured(directory: Path) -> Measured:
    """The results in the records of a run."""
    rows = [row for row in read_metrics(directory) if f"evaluation/heldout/{names.ACCURACY}" in row]
    after = {name.removeprefix("evaluation/heldout/"): value for name, value in rows[-1].items()}
    return Measured(
        problems=accuracy_by_problem(evaluation_files(directory)["heldout"][-1]),
        accuracy_before=rows[0][f"evaluation/heldout/{names.ACCURACY}"],
        accuracy=after[names.ACCURACY],
        code_ratio=after[names.CODE_RATIO],
        calls=after[names.CALLS_PER_TRAJECTORY],
        pass_ratio=after.get(names.PASS_RATIO),
        seconds=json.loads((directory / "summary.json").read_text())["train_seconds"],
    )


def as_json(run: Measured) -> dict[str, float | None]:
    """The numbers of a run, without the single problems."""
    return {name: value for name, value in asdict(run).items() if name != "problems"}


def lines(found: Mapping[str, Row]) -> list[str]:
    """The table: means over seeds, and differences from GRPO with as many updates, paired by seed and problem."""
    table = [
        "| row | seeds | base → trained, % | from GRPO | verdict | code ratio | calls | pass ratio | seconds |",
        "|---" * 9 + "|",
    ]
    for name, row in found.items():
        runs = list(row.values())
        passes = [run.pass_ratio for run in runs if run.pass_ratio is not None]
        base = {} if base_of(name) == name else found.get(base_of(name), {})
        difference = difference_over_seeds(accuracies(row), accuracies(base))
        cells = [
            ROWS[name][0],
            str(len(runs)),
            f"{100 * mean(run.accuracy_before for run in runs):.0f} → {mean_over_seeds(accuracies(row))}",
            "-" if difference is None else str(difference),
            "-" if difference is None else difference.verdict,
            f"{mean(run.code_ratio for run in runs):.2f}",
            f"{mean(run.calls for run in runs):.2f}",
            f"{mean(passes):.2f}" if passes else "-",
            f"{mean(run.seconds for run in runs):.0f}",
        ]
        table.append(f"| {' | '.join(cells)} |")
    return table


def accuracies(row: Row) -> dict[int, Mapping[str, float]]:
    """The accuracy of each problem, by seed."""
    return {seed: run.problems for seed, run in row.items()}


if __name__ == "__main__":
    main()
