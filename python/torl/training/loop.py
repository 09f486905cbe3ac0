"""A training run: problems, episodes, rewards, advantages, optimizer steps, new weights in the engine, records.

`Run.train` below is the whole of it. It knows no algorithm and no tool; the parts it calls do.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass

from torl.records import metric_names as names
from torl.records.by_metadata import dynamics_by_value
from torl.records.dynamics import staleness, training_dynamics
from torl.records.rows import group_records
from torl.report.page import write_report
from torl.rollout.evaluation import evaluate
from torl.training.experience import Experience
from torl.training.health import require_matching_policies
from torl.training.masking import mask_samples, masked_by_reference, masked_trajectories
from torl.training.parts import RunComponents
from torl.training.residency import Residency
from torl.training.samples import training_samples, with_advantages
from torl.training.step import PlayedStep
from torl.training.step_records import step_records
from torl.types import ScoredGroup, TrainingSample


@dataclass(slots=True)
class Run:
    """A run with all its parts started."""

    parts: RunComponents
    experience: Experience
    residency: Residency

    async def train(self) -> None:
        """Every step from the first to the last, then the last evaluation, checkpoint and export."""
        steps = self.parts.config.run.steps
        async with aclosing(self.experience.steps(self.parts.first_step)) as played_steps:
            for step in range(self.parts.first_step, steps):
                self.parts.checkpoints.check()
                await self._evaluate_if_due(step)
                metrics: dict[str, float] = {}
                with _timed(metrics, names.TIME_STEP):
                    # --- rollout: episodes of every prompt, each at its own pace, and what they are worth -----------
                    with _timed(metrics, names.TIME_WAIT):
                        played = await anext(played_steps)
                    async with self.residency.handover_lock:
                        await self.residency.give_to_learner()
                        # --- learn: advantages within groups, then the optimizer steps ------------------------------
                        with _timed(metrics, names.TIME_LEARN):
                            samples = await self._learn(step, played, metrics)
                        # --- weights: the engine samples with what was learned --------------------------------------
                        with _timed(metrics, names.TIME_SYNC):
                            await self.residency.publish(step + 1)
                            self.experience.advance(step + 1)
                # --- records: written while the next step is played -------------------------------------------------
                await self._record(step, played, samples, metrics)
                if _due(step + 1, self.parts.config.checkpoint.every_steps) and step + 1 < steps:
                    await self._save_checkpoint(step + 1)
        await self._evaluate_if_due(steps)
        await self._save_checkpoint(steps)
        async with self.residency.handover_lock:
            await self.residency.give_to_learner()
            with self.parts.console.progress("exporting the model"):
                await self.residency.require_learner("export").export(self.parts.directory / "model")
        with self.parts.console.progress("writing the last checkpoint"):
            await self.parts.checkpoints.wait()

    async def _learn(self, step: int, played: PlayedStep, metrics: dict[str, float]) -> list[TrainingSample]:
        """One step of the learner on the step's batch; returns what it was made of."""
        config = self.parts.config
        batch = [member for group in played.batch for member in group.members]
        trajectories = [each for member in batch for each in member.episode_trajectories]
        masks = await asyncio.to_thread(masked_trajectories, trajectories, config.selection)
        mask_late = config.selection.mask_after_advantages
        samples = mask_samples(await asyncio.to_thread(training_samples, batch), {} if mask_late else masks)
        samples = await self.residency.require_learner("prepare").annotate(samples)
        masks |= masked_by_reference(trajectories, samples, config.selection)
        samples = mask_samples(samples, {} if mask_late else masks)
        samples = await asyncio.to_thread(with_advantages, samples, played.batch, config.algorithm)
        samples = mask_samples(samples, masks)
        metrics |= {names.masked(name): int(masked.sum()) for name, masked in masks.items()}
        metrics[names.TRAINED_GROUPS] = len(played.batch)
        learner = self.residency.require_learner("update")
        metrics |= names.learner_metrics(await learner.update(samples, step=step))
        return samples

    async def _record(
        self, step: int, played: PlayedStep, samples: Sequence[TrainingSample], metrics: dict[str, float]
    ) -> None:
        parts = self.parts
        records = await asyncio.to_thread(step_records, step, played, samples, parts.config.algorithm)
        await asyncio.to_thread(parts.writer.write_trajectories, step, records)
        metrics |= await asyncio.to_thread(training_dynamics, played.groups) | played.counts
        metrics |= self._by_kind(played.groups)
        metrics |= await asyncio.to_thread(staleness, played.trajectories, step)
        metrics[names.TIME_ROLLOUT] = played.seconds
        metrics[names.TIME_REWARD] = played.reward_seconds
        metrics |= parts.counters()
        parts.writer.write_metrics(step, metrics)
        parts.console.step(step + 1, parts.config.run.steps, metrics)
        require_matching_policies(metrics, parts.config.learner.max_logprob_gap)

    def _by_kind(self, groups: Sequence[ScoredGroup]) -> dict[str, float]:
        field = self.parts.config.run.group_metrics_by
        return {} if field is None else dynamics_by_value(groups, field)

    async def _evaluate_if_due(self, step: int) -> None:
        """Evaluate the policy after `step` updates: before the first, after the last, and as often as configured."""
        parts, config = self.parts, self.parts.config.evaluation
        if not (step in (0, parts.config.run.steps) or _due(step, config.every_steps)):
            return
        metrics: dict[str, float] = {}
        with _timed(metrics, names.TIME_EVALUATION):
            for name, problems in parts.evaluation_sets.items():
                with parts.console.progress(f"evaluating {name}", config.episodes(len(problems.prompts))) as wait:
                    shown = await evaluate(parts.rollouts, problems, config, name=name, on_episode=wait.advance)
                metrics |= names.evaluation_metrics(name, shown.metrics | self._by_kind(shown.groups))
                for label, groups in shown.by_file(name).items():
                    records = group_records(step, groups)
                    await asyncio.to_thread(parts.writer.write_trajectories, step, records, evaluation_set=label)
                parts.console.evaluation(step, name, shown.metrics)
        parts.writer.write_metrics(step, metrics)
        parts.checkpoints.record_evaluation(step, metrics)

    async def _save_checkpoint(self, step: int) -> None:
        """Copy the state after `step` updates, wherever the learner holds it; it is written behind what comes next."""
        parts = self.parts
        metrics: dict[str, float] = {}
        with _timed(metrics, names.TIME_CHECKPOINT), parts.console.progress("copying a checkpoint"):
            await parts.checkpoints.begin(step, {"step": step, "sampler": self.experience.position(step)})
        parts.writer.write_metrics(step, metrics)
        write_report(parts.directory, parts.config.run.note)


def _due(step: int, every_steps: int) -> bool:
    return every_steps > 0 and step % every_steps == 0


@contextmanager
def _timed(metrics: dict[str, float], name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    metrics[name] = time.perf_counter() - start
