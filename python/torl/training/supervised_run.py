"""Supervised fine-tuning: examples, optimizer steps, validation, records.

It takes the same optimizer steps as reinforcement learning. A policy loss without importance ratio, `-A * logprob`, is
the cross-entropy of tokens with an advantage of 1, and weights of examples are their advantages.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from torl.base.runtime.cluster import Cluster
from torl.base.runtime.processes.hangs import watch_event_loop
from torl.base.runtime.processes.supervision import run_with_watchers
from torl.base.types import TrainingSample
from torl.learner.learner import Learner
from torl.rollout.startup import Components
from torl.run.config import FinetuneConfig
from torl.run.display.console import SUPERVISED_COLUMNS, Console
from torl.run.records import metric_names as names
from torl.training.components import RunComponents, open_model, read_evaluation_sets, start_components
from torl.training.examples import Example, Examples, batch_samples
from torl.training.health import HangRecorder
from torl.training.milestones import Milestones, timed
from torl.training.monitor import Monitors
from torl.training.residency import Residency
from torl.training.run import run_recorded
from torl.training.startup import prepare_inputs

# Metrics of the learner that describe a policy gradient, not a cross-entropy.
_LEARNER_METRICS = (
    *("loss", "imitation_loss", "entropy", "gradient_norm", "learning_rate"),
    *("tokens", "sampled_tokens", "imitated_tokens", "samples", "rows", "update_seconds"),
)


async def finetune(config: FinetuneConfig, console: Console) -> dict[str, Any]:
    """Run `config` to its last step and return the summary (`run_recorded`).

    Raises:
        TorlError: The configuration, the examples or a component failed. All records written so far are kept.
    """
    return await run_recorded(config, console, _attempt)


@dataclass(slots=True)
class SupervisedRun:
    """A fine-tuning run with all its components started.

    Attributes:
        components: Components of the run.
        examples: Examples and their order.
        residency: Owner of the devices' memory, if the run evaluates on problems.
        monitors: Watchers of the run.
    """

    components: RunComponents[FinetuneConfig]
    examples: Examples
    residency: Residency | None
    monitors: Monitors

    async def train(self) -> None:
        """Run every step from the first to the last, then the last evaluation, checkpoint and export."""
        components, milestones = self.components, Milestones(self.components, self.monitors, self._measure)
        for step in range(components.inputs.first_step, components.config.total_steps):
            components.checkpoints.check()
            await milestones.evaluate_if_due(step)
            metrics: dict[str, float] = {}
            with timed(metrics, names.TIME_STEP):
                batch = self.examples.next_batch(components.config.finetune.batch_size)
                async with self._learner() as learner:
                    report = await learner.update(batch_samples(batch), step=step)
            self._record(step, batch, metrics | names.learner_metrics(_supervised(report)))
            await milestones.save_if_due(step + 1, self.examples.position)
        await milestones.finish(self.examples.position, partial(self._export, milestones))

    def _record(self, step: int, batch: Sequence[Example], metrics: dict[str, float]) -> None:
        components = self.components
        metrics[names.EPOCH] = float(self.examples.sampler.epoch)
        components.writer.write_examples(step, [example.id for example in batch])
        components.writer.write_metrics(step, metrics)
        components.console.step(step + 1, components.config.total_steps, metrics, SUPERVISED_COLUMNS)

    async def _measure(self, step: int, metrics: dict[str, float]) -> None:
        """Measure the loss on the validation examples, and give the weights to the engine if problems follow."""
        validation = batch_samples(self.examples.validation)
        if validation:
            with self.components.console.progress("computing the validation loss"):
                async with self._learner() as learner:
                    annotated = await learner.logprobs(validation, step=step)
            logprobs = [each.old_logprobs for each in annotated if each.old_logprobs is not None]
            metrics |= validation_metrics(validation, logprobs)
            self.components.console.line(f"validation loss after step {step}: {metrics[names.VALIDATION_LOSS]:.4f}")
        if self.residency is not None:
            async with self.residency.lend_learner() as loan:
                await loan.publish(step)

    async def _export(self, milestones: Milestones) -> None:
        async with self._learner() as learner:
            await milestones.export(learner)

    @asynccontextmanager
    async def _learner(self) -> AsyncIterator[Learner]:
        """Yield the learner while it has the devices."""
        if self.residency is None:
            yield self.components.learner
            return
        async with self.residency.lend_learner() as loan:
            yield loan.learner


def validation_metrics(
    samples: Sequence[TrainingSample], logprobs: Sequence[np.ndarray[Any, np.dtype[np.float32]]]
) -> dict[str, float]:
    """Return the mean cross-entropy of the trained tokens, weighted as in the loss, and their number."""
    total, count = 0.0, 0
    for sample, values in zip(samples, logprobs, strict=True):
        assert sample.advantages is not None  # of an example
        total -= float((sample.advantages * values)[sample.loss_mask].sum(dtype=np.float64))
        count += int(sample.loss_mask.sum())
    return {names.VALIDATION_LOSS: total / count, names.VALIDATION_TOKENS: float(count)}


def _supervised(report: dict[str, float]) -> dict[str, float]:
    return {name: report[name] for name in _LEARNER_METRICS if name in report}


async def _attempt(
    config: FinetuneConfig, directory: Path, console: Console, cluster: Cluster, monitors: Monitors
) -> int:
    """Run from the first step, or from the latest checkpoint, to the last step, and return the number of steps."""
    timeout_seconds = config.rollout.stall_timeout_seconds
    model = open_model(config)
    with console.progress("reading the examples"):
        examples = await asyncio.to_thread(Examples.read, config, model, console.line)
    config = config.with_steps(len(examples.train))
    sets = read_evaluation_sets(config, model, console)
    inputs = await prepare_inputs(config, model, examples.sampler, sets, directory, console, cluster)
    inputs = replace(inputs, sources=examples.sources)
    playing = Components.from_config(inputs.resolved.config) if config.plays_episodes else None
    async with start_components(config, inputs, playing, directory, console, cluster) as components:
        residency, watchers = None, [components.learner.watch()]
        if components.playing is not None:
            residency = components.residency()
            watchers += [*components.rollouts.watchers(timeout_seconds), residency.resend_weights()]
        await asyncio.to_thread(monitors.open, components.config, directory, components.inputs.first_step)
        run = SupervisedRun(components, examples, residency, monitors)
        log = directory / "logs" / "controller.log"
        hang = HangRecorder(components, log)
        async with watch_event_loop(log, timeout_seconds, "rollout.stall_timeout_seconds"):
            await run_with_watchers(hang.dump_stacks_on_hang(run.train()), *map(hang.dump_stacks_on_hang, watchers))
    return config.total_steps
