"""Cost of Ray on one machine: a step of the demo by local processes, and on nodes of a Ray cluster.

    .venv/ray/bin/python -m benchmarks.rollout.cluster_cost [--rounds 3] [--steps 12] [--output runs/cluster_cost]

Compared with local processes: "ray" is the cluster that torl starts, of this machine alone; "ray_node" is one whose
head has no cores, with one node, as another machine would be one: every call goes through Ray.

The runs take turns, so that all see the same machine. The first two steps of each are left out. "cpu" is what all
processes of a run used, Ray's among them, and depends less on what else the machine does than the time of a step.
Curves are equal where all play the same episodes: the seeds say what is sampled, and float32 sums in another order can
change a token. So the mean reward of the last half of the steps is shown with its standard error over steps. The last
line is JSON, with ratios to the local runs.
"""

import argparse
import contextlib
import json
import math
import os
import shutil
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import psutil

from benchmarks import ROOT
from benchmarks.demo.table import train
from torl.run.records.reading import read_metrics

WARM = 2  # steps
SETTINGS = {"evaluation.every_steps": 0, "checkpoint.every_steps": 0, "evaluation.max_problems": 16}
KINDS = ("local", "ray", "ray_node")


@contextlib.contextmanager
def cluster_of(kind: str) -> Iterator[dict[str, object]]:
    """The overrides of a run of this kind."""
    if kind == "local":
        yield {}
    elif kind == "ray":
        with patch.dict(os.environ, RAY_ADDRESS="local"):
            yield {"cluster.kind": "ray"}
    else:
        from ray.cluster_utils import Cluster

        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        cluster.add_node(num_cpus=len(os.sched_getaffinity(0)))
        with patch.dict(os.environ, RAY_ADDRESS=cluster.address):
            yield {"cluster.kind": "ray"}
        cluster.shutdown()


class CpuMeter(threading.Thread):
    """Notes the CPU time of all that descends from this process when steps end."""

    def __init__(self, metrics: Path, steps: int) -> None:
        super().__init__(daemon=True)
        self._metrics = metrics
        self._wanted = [WARM, steps]
        self._noted: list[float] = []

    def run(self) -> None:
        """Until the last step has ended."""
        for steps in self._wanted:
            while not self._metrics.exists() or self._metrics.read_text().count('"time/step"') < steps:
                time.sleep(0.02)
            self._noted.append(_cpu_seconds())

    def seconds_of_step(self) -> float:
        """The mean over the steps."""
        self.join()
        return (self._noted[1] - self._noted[0]) / (self._wanted[1] - self._wanted[0])


def _cpu_seconds() -> float:
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--output", type=Path, default=ROOT / "runs" / "cluster_cost")
    parser.add_argument("--kinds", nargs="+", choices=KINDS[1:], default=KINDS[1:])
    options = parser.parse_args()
    os.environ |= {"RAY_worker_niceness": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    kinds = ("local", *options.kinds)
    measured: dict[str, dict[str, list[float]]] = {kind: {"step": [], "cpu": [], "reward": []} for kind in kinds}
    for number in range(options.rounds):
        for kind in kinds:
            directory = options.output / f"{kind}_{number}"
            shutil.rmtree(directory, ignore_errors=True)
            meter = CpuMeter(directory / "metrics.jsonl", options.steps)
            meter.start()
            with cluster_of(kind) as cluster:
                train(directory, {"run.seed": number, "run.steps": options.steps, **SETTINGS, **cluster})
            steps = [row for row in read_metrics(directory) if "time/step" in row]
            found = measured[kind]
            found["step"].append(statistics.fmean(row["time/step"] for row in steps[WARM:]))
            found["cpu"].append(meter.seconds_of_step())
            found["reward"] += [row["reward/mean"] for row in steps[len(steps) // 2 :]]
            print(f"{kind} {number}: {found['step'][-1]:.2f} s a step, {found['cpu'][-1]:.2f} of CPU time", flush=True)
    result: dict[str, object] = {}
    for kind, found in measured.items():
        rewards = found["reward"]
        error = statistics.stdev(rewards) / math.sqrt(len(rewards))
        result[kind] = {"reward": round(statistics.fmean(rewards), 4), "reward_error": round(error, 4)}
        for measure in ("step", "cpu"):
            ratios = [mine / its for mine, its in zip(found[measure], measured["local"][measure], strict=True)]
            result[kind] |= {
                measure: round(statistics.median(ratios), 3),
                f"{measure}_ratios": [round(r, 3) for r in ratios],
            }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
