"""Checkpoints of a run: the ones that are kept, and when a failed write is reported."""

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import pytest

from torl.base.errors import CheckpointError, ConfigError
from torl.commands.export import _choose
from torl.learner.checkpoint.directory import open_checkpoint
from torl.run.config import CheckpointConfig, FinetuneConfig, TrainConfig
from torl.run.config.loading import find_config, load_config
from torl.run.records.writers import RunWriter
from torl.training.checkpoints import Checkpoints, require_evaluation_metric

METRIC = "evaluation/heldout/reward/accuracy"


class WritesTheControllersState:
    """A learner without ranks: the directories are real."""

    def __init__(self) -> None:
        self.failing = False

    async def begin_checkpoint(self, directory: Path, state: dict[str, Any]) -> "asyncio.Task[None]":
        async def write() -> None:
            with open_checkpoint(directory, state, {}):
                if self.failing:
                    raise CheckpointError("the disk is full")

        return asyncio.create_task(write())


def checkpoints_of(directory: Path, learner: Any, **settings: Any) -> Checkpoints:
    return Checkpoints(CheckpointConfig(**settings), directory, learner)


def left(directory: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("step_")) for path in (directory / "checkpoints").iterdir())


async def test_best_checkpoint_is_kept_in_addition_to_the_newest(tmp_path: Path) -> None:
    checkpoints = checkpoints_of(tmp_path, WritesTheControllersState(), keep_last=1, keep_best=METRIC)
    for step, accuracy in enumerate([0.9, 0.3, 0.5, 0.4, 0.45], start=0):
        if step > 0:  # there is none before the first step, however good the model was
            await checkpoints.begin(step, {})
        checkpoints.record_evaluation(step, {METRIC: accuracy})
    await checkpoints.wait()
    assert left(tmp_path) == [2, 4]


async def test_lowest_validation_loss_is_the_best(tmp_path: Path) -> None:
    checkpoints = checkpoints_of(tmp_path, WritesTheControllersState(), keep_last=1, keep_best="validation/loss")
    for step, loss in enumerate([2.0, 0.5, 0.4, 0.6, 0.7], start=1):
        await checkpoints.begin(step, {})
        checkpoints.record_evaluation(step, {"validation/loss": loss})
    await checkpoints.wait()
    assert left(tmp_path) == [3, 5]


async def test_resumed_run_remembers_best_score(tmp_path: Path) -> None:
    learner = WritesTheControllersState()
    before = checkpoints_of(tmp_path, learner, keep_last=3)
    for step in (1, 2, 3):
        await before.begin(step, {})
    await before.wait()
    rows = [{"step": step, METRIC: value} for step, value in [(1, 0.8), (2, 0.1), (3, 0.2), (4, 0.9)]]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"step": 5}]))
    resumed = checkpoints_of(tmp_path, learner, keep_last=1, keep_best=METRIC)
    resumed.load_history(3)
    await resumed.begin(4, {})
    await resumed.wait()
    assert left(tmp_path) == [1, 4]


async def test_background_failure_is_raised_at_the_next_step(tmp_path: Path) -> None:
    learner = WritesTheControllersState()
    checkpoints = checkpoints_of(tmp_path, learner)
    await checkpoints.begin(1, {})
    await checkpoints.wait()
    checkpoints.check()
    learner.failing = True
    await checkpoints.begin(2, {})
    checkpoints.check()  # nothing is known yet
    with pytest.raises(CheckpointError, match="the disk is full"):
        await checkpoints.wait()
    with pytest.raises(CheckpointError, match="the disk is full"):
        checkpoints.check()
    assert left(tmp_path) == [1]


async def test_evaluation_without_the_metric_is_not_compared(tmp_path: Path) -> None:
    """An evaluation in which no code runs has no pass ratio."""
    best = "evaluation/heldout/tool/pass_ratio"
    checkpoints = checkpoints_of(tmp_path, WritesTheControllersState(), keep_last=1, keep_best=best)
    for step, metrics in enumerate([{best: 0.5}, {METRIC: 0.9}, {best: 0.25}], start=1):
        await checkpoints.begin(step, {})
        checkpoints.record_evaluation(step, metrics)
    await checkpoints.wait()
    assert left(tmp_path) == [1, 3]


async def test_a_loss_that_is_not_finite_is_not_compared(tmp_path: Path) -> None:
    """Neither in the run nor after a resume, whose records have it as null."""
    best = "validation/loss"
    checkpoints = checkpoints_of(tmp_path, WritesTheControllersState(), keep_last=3, keep_best=best)
    losses = {1: math.nan, 2: 0.5, 3: 0.7, 4: math.nan}
    with RunWriter(tmp_path) as writer:
        for step, loss in losses.items():
            await checkpoints.begin(step, {})
            checkpoints.record_evaluation(step, {best: loss})
            writer.write_metrics(step, {best: loss})
    await checkpoints.wait()
    assert left(tmp_path) == [2, 3, 4]
    resumed = checkpoints_of(tmp_path, WritesTheControllersState(), keep_last=1, keep_best=best)
    resumed.load_history(4)
    await resumed.begin(5, {})
    await resumed.wait()
    assert left(tmp_path) == [2, 5]
    config = keeping(best, **{"data.evaluation": {}, "checkpoint.every_steps": 0})
    assert _choose(tmp_path, config, None) == 2


def keeping(best: str, **overrides: Any) -> TrainConfig:
    intervals = {"evaluation.every_steps": 10, "checkpoint.every_steps": 20}
    return load_config(TrainConfig, find_config("demo"), {"checkpoint.keep_best": best, **intervals, **overrides})


@pytest.mark.parametrize(("evaluated", "saved"), [(10, 25), (0, 20), (20, 10)])
def test_checkpoints_without_an_evaluation_are_refused(evaluated: int, saved: int) -> None:
    intervals = {"evaluation.every_steps": evaluated, "checkpoint.every_steps": saved}
    with pytest.raises(ConfigError, match=f"{saved} must be a multiple of evaluation.every_steps = {evaluated}"):
        require_evaluation_metric(keeping(METRIC, **intervals))
    require_evaluation_metric(keeping(METRIC, **intervals | {"checkpoint.every_steps": 0}))


@pytest.mark.parametrize(
    "metric", ["reward/accuracy", "reward/greedy_accuracy", "reward/part/x", "tool/error/KeyError"]
)
def test_metric_of_an_evaluation_can_be_kept(metric: str) -> None:
    require_evaluation_metric(keeping(f"evaluation/heldout/{metric}"))


@pytest.mark.parametrize(
    "best", ["no/such", METRIC + "s", "reward/accuracy", "evaluation/other/reward/accuracy", "evaluation/heldout/time"]
)
def test_unknown_best_metric_is_refused_before_the_start(best: str) -> None:
    with pytest.raises(ConfigError, match=f"keep_best = '{best}' is not an evaluation .* such as {METRIC}$"):
        require_evaluation_metric(keeping(best))


def test_validation_loss_needs_validation_examples() -> None:
    settings = {
        "model.path": "m",
        "finetune.train": "t",
        "run.directory": "r",
        "checkpoint.keep_best": "validation/loss",
    }
    with pytest.raises(ConfigError, match=r"'validation/loss' is not an .* data\.evaluation has no problem sets"):
        require_evaluation_metric(load_config(FinetuneConfig, None, settings))
    require_evaluation_metric(load_config(FinetuneConfig, None, {**settings, "finetune.validation_fraction": 0.1}))


def test_metric_that_is_not_measured_is_refused_before_the_start() -> None:
    greedy = "evaluation/heldout/reward/greedy_accuracy"
    with pytest.raises(ConfigError, match="is not an evaluation metric of this run"):
        require_evaluation_metric(keeping(greedy, **{"evaluation.greedy": False}))
