"""A run's checkpoints: written behind its training, and which of them are kept."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torl.config import CheckpointConfig
from torl.errors import ConfigError
from torl.learner.checkpoint.directory import checkpoint_path, prune_checkpoints
from torl.learner.learner import Learner
from torl.records import metric_names as names
from torl.records.reading import read_metrics


class Checkpoints:
    """One is written at a time; what went wrong is raised by the next call."""

    def __init__(self, config: CheckpointConfig, run_directory: Path, learner: Learner) -> None:
        """Of a run that begins; of one that resumes, call `remember` too."""
        self._config = config
        self._directory = run_directory
        self._learner = learner
        self._writing: asyncio.Task[None] | None = None
        self._values: dict[int, float] = {}  # of the metric that decides which is best, by step

    def load_history(self, first_step: int) -> None:
        """Take what the run has measured before it was interrupted, up to `first_step`."""
        for row in read_metrics(self._directory):
            if row["step"] <= first_step and self._config.keep_best in row:
                self._values[row["step"]] = row[self._config.keep_best]

    def record_evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        """Hear what an evaluation of the policy after `step` steps has measured.

        Raises:
            ConfigError: `checkpoint.keep_best` is not among it.
        """
        wanted = self._config.keep_best
        if wanted is None:
            return
        if wanted not in metrics:
            known = ", ".join(sorted(name for name in metrics if names.split_evaluation(name)))
            raise ConfigError(f"checkpoint.keep_best = {wanted!r} is no metric of the evaluations: {known}")
        self._values[step] = metrics[wanted]

    async def begin(self, step: int, state: dict[str, Any]) -> None:
        """Copy the learner's state and begin to write it; waits for the checkpoint before."""
        await self.wait()
        writing = await self._learner.begin_checkpoint(checkpoint_path(self._directory, step), state)
        self._writing = asyncio.create_task(self._complete(writing))
        self._writing.add_done_callback(_take_notice)

    def check(self) -> None:
        """Raise what has gone wrong with the checkpoint that was begun, if something has."""
        if self._writing is not None and self._writing.done():
            self._writing.result()

    async def wait(self) -> None:
        """Return when what was begun is whole, or raise why it is not."""
        if self._writing is not None:
            await self._writing

    async def _complete(self, writing: "asyncio.Task[None]") -> None:
        await writing
        await asyncio.to_thread(prune_checkpoints, self._directory, self._config.keep_last, dict(self._values))


def _take_notice(task: "asyncio.Task[None]") -> None:
    """The run may end for another reason before it asks what became of its checkpoint."""
    if not task.cancelled():
        task.exception()
