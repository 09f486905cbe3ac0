"""The demo's table: with the tool, without it, and two controls that must not learn, for several seeds.

    python -m benchmarks.demo.table [--seeds 0 1 2] [--jobs 1] [--output runs/demo_table]

Each row is one `python -m torl.train demo`; runs that are already there are not repeated. Prints the
table in Markdown and, on the last line, everything as JSON. Accuracies are over the first 128 problems of a set, twice
each at temperature 1 (a standard error of about 3 points for one run) and once greedily.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks import settings_words

EVALUATION_SETS = {
    "heldout": "torl:demo/problems/heldout.jsonl",
    "seen": "torl:demo/problems/seen.jsonl",
    "three_step": "torl:demo/problems/three_step.jsonl",
}
VARIANTS: dict[str, tuple[str, dict[str, object]]] = {
    "tool": ("with the tool, C = 1", {}),
    "no_tool": ("without it, C = 0", {"rollout.max_tool_calls": 0}),
    "shuffled_observations": ("control: observations shuffled", {"ablation.shuffle": "observations"}),
    "shuffled_rewards": ("control: rewards shuffled", {"ablation.shuffle": "rewards"}),
}
PROBLEMS = 128
MEASURES = ("accuracy", "greedy_accuracy", "code_ratio", "pass_ratio")
Summary = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=1, help="runs at once, with one thread each where more than one")
    parser.add_argument("--output", type=Path, default=Path("runs/demo_table"))
    options = parser.parse_args()
    runs = list(product(options.seeds, VARIANTS))  # all variants of a seed first: a table cut short is still whole
    with ThreadPoolExecutor(options.jobs) as pool:
        summaries = pool.map(lambda wanted: run(options.output, *wanted, options.jobs), runs)
        results: dict[str, list[Summary]] = {variant: [] for variant in VARIANTS}
        for (_, variant), summary in zip(runs, summaries, strict=True):
            results[variant].append(summary)
    for name in EVALUATION_SETS:
        print(f"\n{name}: base → trained, mean over {len(options.seeds)} seeds [lowest, highest]\n")
        print(f"| run | {' | '.join(measure.replace('_', ' ') for measure in MEASURES)} |")
        print("|---" * (len(MEASURES) + 1) + "|")
        for variant, found in results.items():
            print(f"| {VARIANTS[variant][0]} | {' | '.join(cell(found, name, measure) for measure in MEASURES)} |")
    seconds = [summary["train_seconds"] for found in results.values() for summary in found]
    print(f"\ntraining and evaluation took {min(seconds):.0f} to {max(seconds):.0f} s a run\n")
    print(json.dumps(results))


def run(output: Path, seed: int, variant: str, jobs: int) -> Summary:
    """Train a variant, or read what an earlier call trained."""
    overrides: dict[str, object] = {
        "run.seed": seed,
        "evaluation.every_steps": 0,
        "evaluation.max_problems": PROBLEMS,
        **{f"data.evaluation.{name}": path for name, path in EVALUATION_SETS.items()},
        **VARIANTS[variant][1],
        **threads(jobs),
    }
    return train(output / f"{variant}_seed_{seed}", overrides)


def threads(jobs: int) -> dict[str, object]:
    """Return the settings of one thread for engine and learner if several runs share the cores."""
    return {"engine.cpu_threads": 1, "learner.cpu_threads": 1} if jobs > 1 else {}


def train(directory: Path, overrides: Mapping[str, object]) -> Summary:
    """Train the demo with `overrides` into `directory`, unless that is done already; its summary.

    What a run that was cut short has left is removed first.
    """
    summary = directory / "summary.json"
    if not summary.exists():
        shutil.rmtree(directory, ignore_errors=True)
        words = settings_words({"run.directory": directory, **overrides})
        command = [sys.executable, "-m", "torl.train", "demo", *words]
        print(" ".join(command[1:]), file=sys.stderr, flush=True)
        subprocess.run(command, check=True, stdout=sys.stderr)
    loaded: Summary = json.loads(summary.read_text())
    return loaded


def cell(summaries: list[Summary], name: str, measure: str) -> str:
    """The means before and after; a ratio that no seed defines (a pass ratio without runs) is a dash."""
    values = {
        when: [
            summary["evaluation"][name][f"{measure}_{when}"]
            for summary in summaries
            if summary["evaluation"][name][f"{measure}_{when}"] is not None
        ]
        for when in ("before", "after")
    }
    if not values["before"] or not values["after"]:
        return "-"
    after = values["after"]
    return (
        f"{statistics.mean(values['before']):.2f} → {statistics.mean(after):.2f} [{min(after):.2f}, {max(after):.2f}]"
    )


if __name__ == "__main__":
    main()
