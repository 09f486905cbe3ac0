"""The checkpoints of a run: written in the background, and pruned to the ones to keep."""

import asyncio
import math
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from torl.base.errors import ConfigError
from torl.base.runtime.cluster import Cluster
from torl.learner.checkpoint.directory import checkpoint_path, prune_checkpoints
from torl.learner.learner import Learner
from torl.run.config import CheckpointConfig, LearningConfig
from torl.run.records import metric_names as names
from torl.run.records.reading import read_metrics


class Checkpoints:
    """The checkpoints of a run. One is written at a time; the next call raises its error, if any.

    Args:
        config: When to write checkpoints, and which to keep.
        run_directory: Directory of the run.
        learner: Learner whose state is written.
    """

    def __init__(self, config: CheckpointConfig, run_directory: Path, learner: Learner) -> None:
        self._config = config
        self._directory = run_directory
        self._learner = learner
        self._writing: asyncio.Task[None] | None = None
        self._values: dict[int, float] = {}  # quality by the metric `keep_best`, by step

    def load_history(self, first_step: int) -> None:
        """Load the evaluations up to `first_step` of a run that resumes."""
        for row in read_metrics(self._directory):
            if row["step"] <= first_step:
                self.record_evaluation(row["step"], row)

    def record_evaluation(self, step: int, metrics: Mapping[str, float | None]) -> None:
        """Record the metrics of an evaluation after `step` steps, to choose the best checkpoint.

        An evaluation may lack `checkpoint.keep_best`: `tool/pass_ratio` needs a call, and the set another evaluation.
        A number that is not finite, which records have as null, compares with no other.
        """
        best = self._config.keep_best
        value = None if best is None else metrics.get(best)
        if best is not None and value is not None and math.isfinite(value):
            self._values[step] = names.quality(best, value)

    async def begin(self, step: int, state: dict[str, Any]) -> None:
        """Wait for the previous checkpoint, copy the learner's state and start writing it."""
        await self.wait()
        writing = await self._learner.begin_checkpoint(checkpoint_path(self._directory, step), state)
        self._writing = asyncio.create_task(self._complete(writing, step))
        self._writing.add_done_callback(_retrieve_error)

    async def prune(self, step: int) -> None:
        """Remove old checkpoints, and later ones than the one of `step`, which must exist."""
        await asyncio.to_thread(prune_checkpoints, self._directory, step, self._config.keep_last, dict(self._values))

    def check(self) -> None:
        """Raise the error of the last checkpoint, if it failed."""
        if self._writing is not None and self._writing.done():
            self._writing.result()

    async def wait(self) -> None:
        """Wait until the last checkpoint is complete, or raise its error."""
        if self._writing is not None:
            await self._writing

    async def _complete(self, writing: "asyncio.Task[None]", step: int) -> None:
        await writing
        await self.prune(step)


def _retrieve_error(task: "asyncio.Task[None]") -> None:
    """Mark the error as retrieved, because the run may end for another reason before it waits for the checkpoint."""
    if not task.cancelled():
        task.exception()


def require_evaluation_metric(config: LearningConfig) -> None:
    """Raise ConfigError unless `checkpoint.keep_best` can be a metric of the run's evaluations, at each checkpoint."""
    best, sets = config.checkpoint.keep_best, config.data.evaluation
    if best is None:
        return
    set_name, metric = names.split_evaluation(best) or ("", "")
    measured = metric != names.GREEDY_ACCURACY or config.evaluation.greedy
    is_of_set = set_name in sets and measured and names.is_evaluation_metric(metric)
    if not (is_of_set or (best == names.VALIDATION_LOSS and config.has_validation)):
        known: list[str] = [names.VALIDATION_LOSS] * config.has_validation
        known += [names.evaluation_name(each, names.ACCURACY) for each in sets]
        raise ConfigError(
            f"checkpoint.keep_best = {best!r} is not an evaluation metric of this run; "
            + (f"use one such as {', '.join(known)}" if known else "data.evaluation has no problem sets")
        )
    evaluated, saved = config.evaluation.every_steps, config.checkpoint.every_steps
    if saved and (not evaluated or saved % evaluated):
        raise ConfigError(
            f"checkpoint.keep_best compares checkpoints with an evaluation: checkpoint.every_steps = {saved} must be a "
            f"multiple of evaluation.every_steps = {evaluated}, which must not be 0"
        )


async def require_shared_storage(cluster: Cluster, directory: Path, nodes: Iterable[int]) -> None:
    """Raise ConfigError unless `directory` is on storage that all of `nodes` share with the controller."""
    marker = _make_marker(directory)
    try:
        for node in sorted(set(nodes)):
            if not await cluster.run_on(node, Path.exists, marker):
                raise ConfigError(
                    f"run.directory: {marker.parent} is not the same on node {node}, which has learner ranks: they "
                    "write checkpoints there, so it must be on storage that the nodes share (logs do not need it)"
                )
    finally:
        marker.unlink()


def _make_marker(directory: Path) -> Path:
    """Create a file with a new name, whose absence no file system has cached."""
    marker = directory.resolve() / f".seen-{secrets.token_hex(8)}"
    marker.touch()
    return marker
