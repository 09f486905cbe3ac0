"""Scripted runs with each kind of selection, and the records and metrics of their steps."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from builders import printed
from scripted_engine import ENCODER
from scripted_run import ScriptedRun, ScriptedTool
from torl.base.errors import ToolUnavailableError
from torl.base.types import Outcome
from torl.run.records.dynamics import staleness, training_dynamics
from torl.run.records.reading import read_trajectories
from torl.run.records.rows import TrajectoryRecord
from torl.run.records.writers import write_trajectories
from torl.training.samples import training_samples, with_advantages
from torl.training.step import PlayedStep, step_records


class Away(ScriptedTool):
    """A tool that is unavailable to some of its calls."""

    def __init__(self, away: set[int]) -> None:
        super().__init__()
        self.away = away

    async def call(self, arguments: Mapping[str, Any]) -> Outcome:
        self.calls += 1
        if self.calls - 1 in self.away:
            raise ToolUnavailableError("no server")
        return printed()


def calls_first(run: ScriptedRun, away: set[int]) -> ScriptedRun:
    """Each episode calls the tool once, which fails for some."""
    run.player.tools = {"python": Away(away)}

    def script(request: str) -> list[int]:
        found = re.fullmatch(r"[\w-]+/p\d+/(\d+)/(\d+)", request)
        assert found is not None
        answer = "\\boxed{1}" if int(found[1]) % 2 else "\\boxed{2}"
        return ENCODER.encode(answer if int(found[2]) else "\n```python\n1\n```\n```output")

    run.engine.script = script
    return run


def failing(directory: Path, **settings: Any) -> ScriptedRun:
    """A run of groups of four in which three episodes fail."""
    rollout = {"samples_per_prompt": 4, "max_response_tokens": 200, "max_failed_fraction": 0.3}
    rollout |= {"speculative_execution": False, "max_concurrent_episodes": 1}
    return calls_first(ScriptedRun(directory, slots=1, rollout=rollout, **settings), {1, 4, 5})


SELECTIONS: dict[str, Callable[[Path], ScriptedRun]] = {
    "all": lambda path: ScriptedRun(path),
    "varied": lambda path: ScriptedRun(
        path, lambda number: number % 2, problems=40, selection={"groups": {"zero_variance": {}}}
    ),
    "in range": lambda path: ScriptedRun(
        path, lambda number: number % 2, selection={"groups": {"accuracy_outside": {"range": [0.0, 1.0]}}}
    ),
    "dynamic": lambda path: ScriptedRun(
        path,
        lambda number: number % 3 == 0,
        problems=200,
        selection={"groups": {"zero_variance": {}}, "max_rounds": 10},
    ),
    "dynamic, too few": lambda path: ScriptedRun(
        path,
        lambda number: number % 9 == 0,
        problems=200,
        selection={
            "groups": {"accuracy_outside": {"range": [0.0, 1.0]}},
            "max_rounds": 2,
        },
    ),
    "shuffled": lambda path: ScriptedRun(
        path, ablation={"shuffle": "rewards"}, selection={"groups": {"zero_variance": {}}}
    ),
    "shuffled, dynamic": lambda path: ScriptedRun(
        path,
        lambda number: number % 2,
        problems=200,
        ablation={"shuffle": "rewards"},
        selection={"groups": {"zero_variance": {}}, "max_rounds": 10},
    ),
    "failed": failing,
    "failed, dynamic": lambda path: failing(path, selection={"groups": {"zero_variance": {}}, "max_rounds": 10}),
}


def written(run: ScriptedRun, played: PlayedStep, step: int) -> tuple[list[TrajectoryRecord], dict[str, float]]:
    """The records of a step, read from their file, and its metrics, as the training loop makes them."""
    members = [member for group in played.batch for member in group.members]
    samples = with_advantages(training_samples(members), played.batch, run.config.algorithm)
    records = step_records(step, played, samples, run.config.algorithm)
    metrics = {"data/trained_groups": float(len(played.batch)), **training_dynamics(played.groups), **played.counts}
    path = write_trajectories(run.config.run.directory, step, records)
    return list(read_trajectories(path)), metrics | staleness(played.trajectories, step)
