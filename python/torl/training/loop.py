"""The training loop: problems, episodes, rewards, advantages, optimizer steps, weight transfer, records.

`Run.train` is all of it. It knows no algorithm and no tool; the components do.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from functools import partial

from torl.learner.learner import Learner
from torl.records import metric_names as names
from torl.records.dynamics import dynamics_by_value, staleness, training_dynamics
from torl.records.files import EXPORT_DIRECTORY
from torl.records.rows import group_records
from torl.report.page import write_report
from torl.rollout.evaluation import evaluate
from torl.training.components import RunComponents
from torl.training.experience import Experience
from torl.training.health import PolicyComparison
from torl.training.probe import TransferProbe
from torl.training.residency import Residency
from torl.training.samples import prepare_samples
from torl.training.selection import describe_missing_signal
from torl.training.step import PlayedStep, step_records
from torl.types import ScoredGroup, TrainingSample


@dataclass(slots=True)
class Run:
    """A run with all its components started.

    Attributes:
        components: Components of the run.
        experience: Steps to train on.
        residency: Owner of the devices' memory: the learner or the engine.
        comparison: Check that both hold the same weights.
        probe: Probe of the engine after each transfer.
    """

    components: RunComponents
    experience: Experience
    residency: Residency
    comparison: PolicyComparison
    probe: TransferProbe

    async def train(self) -> None:
        """Run every step from the first to the last, then the last evaluation, checkpoint and export."""
        steps = self.components.config.run.steps
        async with aclosing(self.experience.steps(self.components.first_step)) as played_steps:
            for step in range(self.components.first_step, steps):
                self.components.checkpoints.check()
                await self._evaluate_if_due(step)
                metrics: dict[str, float] = {}
                with _timed(metrics, names.TIME_STEP):
                    # --- rollout: play and grade the episodes of every prompt ---------------------------------------
                    with _timed(metrics, names.TIME_WAIT):
                        played = await anext(played_steps)
                        self.probe.start(step, played.prompts)
                        await self.probe.wait()
                    async with self.residency.lend_learner() as loan:
                        # --- train: masks and advantages, then the optimizer steps ----------------------------------
                        with _timed(metrics, names.TIME_LEARN):
                            samples = await self._update(loan.learner, step, played, metrics)
                        # --- weights: send the new policy to the engine ---------------------------------------------
                        with _timed(metrics, names.TIME_SYNC):
                            await loan.publish(step + 1)
                            self.experience.advance(step + 1)
                    self.probe.start(step + 1, played.prompts)
                # --- records: written while the next step is played -------------------------------------------------
                await self._record(step, played, samples, metrics)
                if _due(step + 1, self.components.config.checkpoint.every_steps) and step + 1 < steps:
                    await self._save_checkpoint(step + 1)
        await self._evaluate_if_due(steps)
        await self._save_checkpoint(steps)
        await self.probe.wait()
        async with self.residency.lend_learner() as loan:
            self.comparison.require_match(steps - 1, await self._probe_gap(loan.learner, steps))
            with self.components.console.progress("exporting the model"):
                await loan.learner.export(self.components.directory / EXPORT_DIRECTORY)
        with self.components.console.progress("writing the last checkpoint"):
            await self.components.checkpoints.wait()

    async def _update(
        self, learner: Learner, step: int, played: PlayedStep, metrics: dict[str, float]
    ) -> list[TrainingSample]:
        """Update the policy on the batch of a step and return its samples."""
        metrics |= await self._probe_gap(learner, step)
        config, annotate = self.components.config.at_step(step), partial(learner.annotate, step=step)
        samples, masked = await prepare_samples(played.batch, annotate, config, self.components.encode)
        metrics |= {names.masked(reason): count for reason, count in masked.items()}
        metrics[names.TRAINED_GROUPS] = len(played.batch)
        metrics |= names.learner_metrics(await learner.update(samples, step=step))
        return samples

    async def _probe_gap(self, learner: Learner, version: int) -> dict[str, float]:
        gap = await self.probe.gap(learner, version)
        return {} if gap is None else {names.LOGPROB_GAP_PROBE: gap}

    async def _record(
        self, step: int, played: PlayedStep, samples: Sequence[TrainingSample], metrics: dict[str, float]
    ) -> None:
        components = self.components
        algorithm = components.config.at_step(step).algorithm
        records = await asyncio.to_thread(step_records, step, played, samples, algorithm)
        await asyncio.to_thread(components.writer.write_trajectories, step, records)
        metrics |= await asyncio.to_thread(training_dynamics, played.groups) | played.counts
        metrics |= self._metrics_by_value(played.groups)
        metrics |= await asyncio.to_thread(staleness, played.trajectories, step)
        metrics |= names.scheduled_values(components.config.scheduled_values(step))
        metrics[names.TIME_ROLLOUT] = played.seconds
        metrics[names.TIME_REWARD] = played.reward_seconds
        metrics |= components.counters()
        components.writer.write_metrics(step, metrics)
        components.console.step(step + 1, components.config.run.steps, metrics)
        if names.LOSS not in metrics and (missing := describe_missing_signal(played.groups)):  # no policy update
            components.console.line(missing)
        if warning := self.comparison.require_match(step, metrics):
            components.console.warning(warning)

    def _metrics_by_value(self, groups: Sequence[ScoredGroup]) -> dict[str, float]:
        field = self.components.config.run.group_metrics_by
        return {} if field is None else dynamics_by_value(groups, field)

    async def _evaluate_if_due(self, step: int) -> None:
        """Evaluate the policy after `step` steps: before the first, after the last, and at the configured interval."""
        components, config = self.components, self.components.config.evaluation
        if not (step in (0, components.config.run.steps) or _due(step, config.every_steps)):
            return
        metrics: dict[str, float] = {}
        with _timed(metrics, names.TIME_EVALUATION):
            for name, problems in components.evaluation_sets.items():
                episodes = config.episodes(len(problems.prompts))
                with components.console.progress(f"evaluating {name}", episodes) as progress:
                    result = await evaluate(
                        components.rollouts, problems, config, name=name, on_episode=progress.advance
                    )
                metrics |= names.evaluation_metrics(name, result.metrics | self._metrics_by_value(result.groups))
                for label, groups in result.by_file(name).items():
                    records = group_records(step, groups)
                    await asyncio.to_thread(components.writer.write_trajectories, step, records, evaluation_set=label)
                components.console.evaluation(step, name, result.metrics)
        components.writer.write_metrics(step, metrics)
        components.checkpoints.record_evaluation(step, metrics)

    async def _save_checkpoint(self, step: int) -> None:
        """Copy the state after `step` steps from GPU or CPU memory. It is written while the run continues."""
        components = self.components
        metrics: dict[str, float] = {}
        with _timed(metrics, names.TIME_CHECKPOINT), components.console.progress("copying a checkpoint"):
            await components.checkpoints.begin(step, {"step": step, "sampler": self.experience.position(step)})
        components.writer.write_metrics(step, metrics)
        write_report(components.directory, components.config.run.note)


def _due(step: int, every_steps: int) -> bool:
    return every_steps > 0 and step % every_steps == 0


@contextmanager
def _timed(metrics: dict[str, float], name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    metrics[name] = time.perf_counter() - start
