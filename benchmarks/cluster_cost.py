"""What Ray costs on one machine: the step time of the demo by local processes, and on a Ray cluster of one node.

    .venv/ray/bin/python benchmarks/cluster_cost.py [--rounds 3] [--steps 12] [--output runs/cluster_cost]

The runs take turns, so that both see the same machine. The first two steps of each are left out. Curves are equal where
both play the same episodes: the seeds say what is sampled, and float32 sums in another order can change a token. So the
mean reward of the last half of the steps is shown with its standard error over steps. The last line is JSON.
"""

import argparse
import json
import math
import statistics
from pathlib import Path

from demo_table import ROOT, train

from torl.records.reading import read_metrics

WARM = 2  # steps
SETTINGS = {"evaluation.every_steps": 0, "checkpoint.every_steps": 0, "evaluation.max_problems": 16}
KINDS = {"local": {}, "ray": {"cluster.kind": "ray", "cluster.address": "local"}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--output", type=Path, default=ROOT / "runs" / "cluster_cost")
    options = parser.parse_args()
    seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    rewards: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for number in range(options.rounds):
        for kind, cluster in KINDS.items():
            directory = options.output / f"{kind}_{number}"
            train(directory, {"run.seed": number, "run.steps": options.steps, **SETTINGS, **cluster})
            steps = [row for row in read_metrics(directory) if "time/step" in row]
            seconds[kind].append(statistics.fmean(row["time/step"] for row in steps[WARM:]))
            rewards[kind] += [row["reward/mean"] for row in steps[len(steps) // 2 :]]
            print(f"{kind} {number}: {seconds[kind][-1]:.2f} s a step", flush=True)
    result = {}
    for kind in KINDS:
        error = statistics.stdev(rewards[kind]) / math.sqrt(len(rewards[kind]))
        result |= {f"{kind}_reward": round(statistics.fmean(rewards[kind]), 4), f"{kind}_reward_error": round(error, 4)}
    ratios = [ray / local for local, ray in zip(seconds["local"], seconds["ray"], strict=True)]
    print(json.dumps({"ratio": round(statistics.median(ratios), 3), "ratios": [round(r, 3) for r in ratios], **result}))


if __name__ == "__main__":
    main()
