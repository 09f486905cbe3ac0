"""Evaluations, checkpoints and the end of a run, for training and fine-tuning."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torl.base.runtime.processes.supervision import task_group
from torl.base.types import ScoredGroup
from torl.components.text.prompts import EncodedPrompts
from torl.learner.learner import Learner
from torl.rollout.evaluation import evaluate
from torl.rollout.model_directory import stop_tokens_of
from torl.run.records import metric_names as names
from torl.run.records.dynamics import dynamics_by_value
from torl.run.records.files import EXPORT_DIRECTORY
from torl.run.records.rows import group_records
from torl.training.components import RunComponents
from torl.training.monitor import Monitors


@dataclass(slots=True)
class Milestones:
    """The events of a run that are due at intervals of steps, and at its end.

    Attributes:
        components: Components of the run.
        monitors: Watchers of the run.
        measure: Function that adds metrics to the evaluation after a number of steps, and prepares the engine.
    """

    components: RunComponents[Any]
    monitors: Monitors
    measure: Callable[[int, dict[str, float]], Awaitable[None]] | None = None

    async def evaluate_if_due(self, step: int) -> None:
        """Evaluate the policy after `step` steps: as configured, and always after the last."""
        components, config = self.components, self.components.config.evaluation
        is_due = _is_due(step, config.every_steps) if step else config.before_training
        if not is_due and step != components.config.total_steps:
            return
        metrics: dict[str, float] = {}
        with timed(metrics, names.TIME_EVALUATION):
            if self.measure is not None:
                await self.measure(step, metrics)
            metrics |= await self._evaluate(step)
        components.writer.write_metrics(step, metrics)
        components.checkpoints.record_evaluation(step, metrics)
        if step:  # before the first step, nothing has been compared
            await asyncio.to_thread(self.monitors.milestone)

    async def _evaluate(self, step: int) -> dict[str, float]:
        """Play the evaluation sets, each beginning while the last episodes of the one before are still sampled."""
        components, config = self.components, self.components.config.evaluation
        sets, writing = components.inputs.evaluation_sets, asyncio.Lock()

        async def play(name: str, problems: EncodedPrompts) -> dict[str, float]:
            result = await evaluate(components.rollouts, problems, config, name=name, on_episode=progress.advance)
            for label, groups in result.by_file(name).items():
                records = group_records(step, groups)
                async with writing:  # from one thread at a time
                    await asyncio.to_thread(components.writer.write_trajectories, step, records, evaluation_set=label)
            components.console.evaluation(step, name, result.metrics)
            return names.evaluation_metrics(name, result.metrics | self.metrics_by_value(result.groups))

        episodes = sum(config.episodes(len(problems.prompts)) for problems in sets.values())
        with components.console.progress(f"evaluating {', '.join(sets)}", episodes) as progress:
            async with task_group() as tasks:
                playing = [tasks.create_task(play(name, problems)) for name, problems in sets.items()]
        return {name: value for each in playing for name, value in each.result().items()}

    def metrics_by_value(self, groups: Sequence[ScoredGroup]) -> dict[str, float]:
        """Return the metrics by value of `run.group_metrics_by`; empty if it is unset."""
        field = self.components.config.run.group_metrics_by
        return {} if field is None else dynamics_by_value(groups, field)

    async def save_if_due(self, step: int, position: Mapping[str, Any]) -> None:
        """Save a checkpoint after `step` steps at the configured interval, except after the last step.

        Args:
            step: Number of steps.
            position: State of the data for a run that resumes at this step.
        """
        if _is_due(step, self.components.config.checkpoint.every_steps) and step < self.components.config.total_steps:
            await self.save_checkpoint(step, position)

    async def finish(self, position: Mapping[str, Any], export: Callable[[], Awaitable[None]]) -> None:
        """Evaluate after the last step, write the last checkpoint unless it exists, and export the model.

        Args:
            position: State of the data.
            export: Function that exports the model.
        """
        steps, console = self.components.config.total_steps, self.components.console
        await self.evaluate_if_due(steps)
        if self.components.inputs.checkpoint is None or self.components.inputs.first_step < steps:
            await self.save_checkpoint(steps, position)
            with console.progress("writing the last checkpoint"):
                await self.components.checkpoints.wait()
        else:  # the run has only resumed there
            await self.components.checkpoints.prune(steps)
        # Only now: an export that fails, as on a full disk, ends the ranks, and a checkpoint that they still write.
        with console.progress("exporting the model"):
            await export()

    async def export(self, learner: Learner) -> None:
        """Write the model to the directory of the run."""
        components = self.components
        await learner.export(components.directory / EXPORT_DIRECTORY, stop_tokens_of(components.config))

    async def save_checkpoint(self, step: int, position: Mapping[str, Any]) -> None:
        """Copy the state after `step` steps from GPU or CPU memory. It is written while the run continues."""
        components = self.components
        metrics: dict[str, float] = {}
        with timed(metrics, names.TIME_CHECKPOINT), components.console.progress("copying a checkpoint"):
            await components.checkpoints.begin(step, {"step": step, **position})
        components.writer.write_metrics(step, metrics)
        self.monitors.milestone()


def _is_due(step: int, every_steps: int) -> bool:
    return every_steps > 0 and step % every_steps == 0


@contextmanager
def timed(metrics: dict[str, float], name: str) -> Iterator[None]:
    """Add the duration of the block to metrics, in seconds."""
    start = time.perf_counter()
    yield
    metrics[name] = time.perf_counter() - start
