"""Gains of playing ahead of the learner: the demo at `max_staleness` 0, 1 and 2.

    python -m benchmarks.demo.async_training [--staleness 0 1 2] [--seeds 0] [--steps 50] [--output runs/async_training]

Each run is `python -m torl.train demo` with truncated importance sampling and twice the learning rate, so
that it gets to 75 %; runs that have ended are not made again. Wall time is that of the steps, without start,
evaluations and checkpoints. "to 75 %": steps' time until the mean accuracy of five steps in a row on the training
problems reaches it. Idle shares: of the learner, the time it waited for episodes; of the engine, the time in which it
held no request. The last line is JSON.
"""

import argparse
import json
import math
import statistics
from itertools import accumulate
from pathlib import Path
from typing import Any

from benchmarks import ROOT
from benchmarks.demo.table import train
from torl.run.records.reading import read_metrics

TARGET = 0.75
WINDOW = 5
HELD_OUT = 256  # problems of the evaluation; its samples of one problem are not independent


SETTINGS = {
    "algorithm.importance_correction": "tis",
    "learner.learning_rate": 2e-4,
    "evaluation.every_steps": 0,
    "checkpoint.every_steps": 0,
}


def read(directory: Path) -> dict[str, Any]:
    rows = read_metrics(directory)
    steps = [row for row in rows if "time/step" in row]
    seconds = list(accumulate(row["time/step"] for row in steps))
    accuracy = [row["reward/accuracy"] for row in steps]
    reached = next(
        (
            seconds[at + WINDOW - 1]
            for at in range(len(steps) - WINDOW + 1)
            if statistics.fmean(accuracy[at : at + WINDOW]) >= TARGET
        ),
        None,
    )
    last = [row for row in rows if "evaluation/heldout/reward/accuracy" in row][-1]
    return {
        "seconds": seconds[-1],
        "seconds_to_75": reached,
        "accuracy": last["evaluation/heldout/reward/accuracy"],
        "learner_idle": sum(row["time/wait_for_rollout"] for row in steps) / seconds[-1],
        "engine_idle": sum(row["time/engine_idle"] for row in steps) / seconds[-1],
        "staleness": statistics.fmean(row["rollout/staleness_mean"] for row in steps),
        "gap_mean": statistics.fmean(row["learner/logprob_gap_mean"] for row in steps if row["learner/updates"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--staleness", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--output", type=Path, default=ROOT / "runs" / "async_training")
    options = parser.parse_args()
    found: dict[int, list[dict[str, Any]]] = {}
    for seed in options.seeds:
        for staleness in options.staleness:
            directory = options.output / f"staleness_{staleness}_seed_{seed}"
            run = {"run.seed": seed, "run.steps": options.steps, "rollout.max_staleness": staleness}
            train(directory, run | SETTINGS)
            found.setdefault(staleness, []).append(read(directory))
    result: dict[str, Any] = {}
    for staleness, runs in found.items():
        known = {name: [run[name] for run in runs if run[name] is not None] for name in runs[0]}
        means = {name: statistics.fmean(values) for name, values in known.items() if values}
        error = math.sqrt(means["accuracy"] * (1 - means["accuracy"]) / (HELD_OUT * len(runs)))
        cells = ", ".join(f"{name} {value:.3g}" for name, value in means.items())
        print(f"max_staleness {staleness}: {cells} (accuracy ± {error:.3f})")
        result |= {f"{name}_{staleness}": round(value, 4) for name, value in means.items()}
        result[f"accuracy_error_{staleness}"] = round(error, 4)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
