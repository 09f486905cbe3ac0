"""Small runs on a Ray cluster's nodes, and what they leave in their directories."""

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from cli import Command, running
from ray_nodes import RayNodes

OPTIONS = {
    "learner.ranks": "2",
    "learner.cpu_threads": "1",
    "learner.zero_stage": "2",
    "learner.verify_weights": "true",
    "engine.replicas": "2",
    "rollout.prompts_per_step": "6",
    "rollout.samples_per_prompt": "4",
    "evaluation.max_problems": "8",
    "evaluation.samples_per_problem": "1",
    "evaluation.every_steps": "0",
    "checkpoint.every_steps": "1",
}


def train(
    directory: Path, nodes: RayNodes | None, steps: int, changes: Mapping[str, str] | None = None
) -> AbstractContextManager[Command]:
    """The demo, smaller, on the nodes or without any."""
    options = OPTIONS | {"run.directory": str(directory), "run.steps": str(steps)} | (changes or {})
    if nodes is not None:
        options["cluster.kind"] = "ray"
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    return running("torl.train", "demo", *words, log=directory.with_suffix(".log"))


def steps_trained(directory: Path) -> list[int]:
    file = directory / "metrics.jsonl"
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    rows = [json.loads(line) for line in lines if line.endswith("\n")]
    return [row["step"] for row in rows if "time/step" in row]


def assert_audited(directory: Path) -> None:
    with running("torl", "verify", str(directory), log=directory.with_suffix(".audit")) as command:
        assert command.wait() == 0, command.output()


def assert_each_episode_once(directory: Path, steps: int) -> None:
    """Every trajectory file holds every sample of every problem of its step, once."""
    for step in range(steps):
        rows = (directory / "trajectories" / f"step_{step:06d}.jsonl").read_text().splitlines()
        names = [(row["problem"], row["sample"]) for row in map(json.loads, rows)]
        assert len(names) == len(set(names)) == 24


def sampled(directory: Path, steps: int) -> list[list[str]]:
    """The samples of each step."""
    files = [directory / "trajectories" / f"step_{step:06d}.jsonl" for step in range(steps)]
    return [sorted(json.loads(line)["sampled_text"] for line in file.read_text().splitlines()) for file in files]
