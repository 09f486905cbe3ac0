"""The demo trained by every algorithm, in both formats, with 0 to 4 calls: the small twin of each preset, and a table.

    python -m benchmarks.demo.algorithm_table [ROW ...] [--seeds 0 1 2] [--steps 25] [--jobs 1] [--markdown FILE]

Each row is one `python -m torl.train demo` per seed with the settings of `algorithm_rows.py`. The measurements of
finished runs are kept in a file (--measurements), and runs that are in it are not repeated: the table can be made in
parts, and `--seeds` without a number prints it again. It has all rows of the file.

Accuracy is over the first 128 held-out problems, four samples each at temperature 1. ± is the interval of 95 % over
seeds (Student's t), differences are paired by seed, and a verdict other than "no difference seen" has an interval
without 0. Prints the table in Markdown.
"""

import argparse
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean as mean

from benchmarks.demo.algorithm_rows import ROWS, SETTINGS, base_of
from benchmarks.demo.measurements import add_measurement, read_measurements
from benchmarks.demo.table import threads, train
from torl.run.records import metric_names as names
from torl.run.records.reading import read_metrics
from torl_lab.evaluation.estimates import difference_over_seeds, mean_over_seeds


@dataclass(frozen=True, slots=True)
class Measured:
    """One finished run: accuracy before and after training, and measures after it."""

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
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2], help="without a number, none is trained")
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--jobs", type=int, default=1, help="runs at once, with one thread each where more than one")
    parser.add_argument("--output", type=Path, default=Path("runs/algorithm_table"))
    parser.add_argument("--measurements", type=Path, help="file of the finished runs; unless given, in the output")
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    options = parser.parse_args()
    if unknown := set(options.rows) - set(ROWS):
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    file = options.measurements or options.output / "measurements.jsonl"
    found = read_measurements(file, Measured)

    def run(seed: int, name: str) -> Measured:
        settings = {"run.seed": seed, "run.steps": options.steps, **SETTINGS, **threads(options.jobs), **ROWS[name][1]}
        directory = options.output / f"{name}_seed_{seed}"
        return measure(directory, train(directory, settings)["train_seconds"])

    wanted = [each for each in product(options.seeds, options.rows or ROWS) if each[0] not in found.get(each[1], {})]
    with ThreadPoolExecutor(options.jobs) as pool:
        for (seed, name), measured in zip(wanted, pool.map(lambda each: run(*each), wanted), strict=True):
            add_measurement(file, name, seed, measured)
    table = "\n".join(lines(read_measurements(file, Measured)))
    print(table)
    if options.markdown is not None:
        options.markdown.write_text(table + "\n", encoding="utf-8")


def measure(directory: Path, seconds: float) -> Measured:
    """The results in the records of a run of this duration."""
    rows = [row for row in read_metrics(directory) if f"evaluation/heldout/{names.ACCURACY}" in row]
    after = {name.removeprefix("evaluation/heldout/"): value for name, value in rows[-1].items()}
    return Measured(
        accuracy_before=rows[0][f"evaluation/heldout/{names.ACCURACY}"],
        accuracy=after[names.ACCURACY],
        code_ratio=after[names.CODE_RATIO],
        calls=after[names.CALLS_PER_TRAJECTORY],
        pass_ratio=after.get(names.PASS_RATIO),
        seconds=seconds,
    )


def lines(found: Mapping[str, Row]) -> list[str]:
    """The table: means over seeds, and differences from GRPO with as many updates, paired by seed."""
    table = [
        "| row | seeds | base → trained, % | from GRPO | verdict | code ratio | calls | pass ratio | seconds |",
        "|---" * 9 + "|",
    ]
    for name in (name for name in ROWS if name in found):
        row = found[name]
        runs = list(row.values())
        passes = [run.pass_ratio for run in runs if run.pass_ratio is not None]
        base = {} if base_of(name) == name else found.get(base_of(name), {})
        difference = difference_over_seeds(accuracies(row), accuracies(base))
        cells = [
            ROWS[name][0],
            str(len(runs)),
            f"{100 * mean(run.accuracy_before for run in runs):.0f} → {mean_over_seeds(accuracies(row))}",
            "-" if difference is None else str(difference),
            "-" if difference is None or difference.half_width is None else difference.verdict,
            f"{mean(run.code_ratio for run in runs):.2f}",
            f"{mean(run.calls for run in runs):.2f}",
            f"{mean(passes):.2f}" if passes else "-",
            f"{mean(run.seconds for run in runs):.0f}",
        ]
        table.append(f"| {' | '.join(cells)} |")
    return table


def accuracies(row: Row) -> dict[int, Mapping[str, float]]:
    """The accuracy of each seed, over all problems."""
    return {seed: {"heldout": run.accuracy} for seed, run in row.items()}


if __name__ == "__main__":
    main()
