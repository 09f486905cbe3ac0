"""The training loop: problems, episodes, rewards, advantages, optimizer steps, weight transfer, records.

`Run.train` is all of it. It knows no algorithm and no tool; the components do.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

from torl.base.types import TrainingSample, UpdateNumbers
from torl.learner.learner import Learner
from torl.run.config import TrainConfig
from torl.run.records import metric_names as names
from torl.run.records.dynamics import staleness, training_dynamics
from torl.run.records.signal import LearningSignal
from torl.run.records.tokens import TokenKey
from torl.training.components import RunComponents
from torl.training.experience import Experience
from torl.training.health import PolicyComparison
from torl.training.milestones import Milestones, timed
from torl.training.monitor import Monitors, Verdict
from torl.training.probe import TransferProbe
from torl.training.residency import Residency
from torl.training.samples import prepare_samples
from torl.training.selection import describe_missing_signal
from torl.training.step import PlayedStep, step_records
from torl.training.token_records import call_logprobs, recorded_samples, token_records


@dataclass(slots=True)
class Run:
    """A run with all its components started.

    Attributes:
        components: Components of the run.
        experience: Steps to train on.
        residency: Owner of the devices' memory: the learner or the engine.
        comparison: Check that both hold the same weights.
        probe: Probe of the engine after each transfer.
        milestones: Evaluations, checkpoints and the end of the run.
        monitors: Watchers of each step.
    """

    components: RunComponents[TrainConfig]
    experience: Experience
    residency: Residency
    comparison: PolicyComparison
    probe: TransferProbe
    milestones: Milestones
    monitors: Monitors

    async def train(self) -> None:
        """Run every step from the first to the last, then the last evaluation, checkpoint and export."""
        steps = self.components.config.run.steps
        await self.take_steps(steps)
        await self.milestones.finish(self.experience.position, self._export)

    async def take_steps(self, stop: int) -> None:
        """Run every step from the first to the one before `stop`."""
        async with aclosing(self.experience.steps(self.components.inputs.first_step)) as played_steps:
            for step in range(self.components.inputs.first_step, stop):
                self.components.checkpoints.check()
                await self.milestones.evaluate_if_due(step)
                metrics: dict[str, float] = {}
                with timed(metrics, names.TIME_STEP):
                    # --- rollout: play and grade the episodes of every prompt ---------------------------------------
                    with timed(metrics, names.TIME_WAIT):
                        played = await anext(played_steps)
                        self.probe.start(step, played.prompts)
                        await self.probe.wait()
                    async with self.residency.lend_learner() as loan:
                        # --- train: masks and advantages, then the optimizer steps ----------------------------------
                        with timed(metrics, names.TIME_LEARN):
                            samples, tokens = await self._update(loan.learner, step, played, metrics)
                            weights = await loan.learner.weight_digest()
                        # --- weights: send the new policy to the engine ---------------------------------------------
                        with timed(metrics, names.TIME_SYNC):
                            await loan.publish(step + 1)
                            self.experience.advance(step + 1)
                    self.probe.start(step + 1, played.prompts)
                # --- records: written while the next step is played -------------------------------------------------
                verdict = await self._record(step, played, samples, tokens, metrics, weights)
                if verdict.error is not None:
                    await self.save(step + 1)
                    raise verdict.error
                await self.milestones.save_if_due(step + 1, self.experience.position)

    async def save(self, step: int) -> None:
        """Write a checkpoint after `step` steps, and wait until it is complete."""
        await self.milestones.save_checkpoint(step, self.experience.position)
        await self.components.checkpoints.wait()

    async def _export(self) -> None:
        """Write the model, unless the engine did not receive its weights."""
        await self.probe.wait()
        async with self.residency.lend_learner() as loan:
            steps = self.components.config.run.steps
            self.comparison.require_match(steps - 1, await self._probe_gap(loan.learner, steps))
            await self.milestones.export(loan.learner)

    async def _update(
        self, learner: Learner, step: int, played: PlayedStep, metrics: dict[str, float]
    ) -> tuple[list[TrainingSample], dict[TokenKey, UpdateNumbers]]:
        """Update the policy on the batch of a step and return its samples, and the numbers of recorded tokens."""
        metrics |= await self._probe_gap(learner, step)
        config, encode = self.components.config.at_step(step), self.components.inputs.encode
        assert encode is not None  # of a training run
        longest = self.components.config.longest_sample
        annotate = partial(learner.annotate, step=step)
        samples, counts = await prepare_samples(played.batch, annotate, config, encode, longest)
        metrics |= counts
        metrics[names.TRAINED_GROUPS] = len(played.batch)
        recorded = recorded_samples(played.batch, samples, step, config)
        opened = await call_logprobs(learner, samples, recorded, step, self.components.player)
        metrics |= names.learner_metrics(await learner.update(samples, step=step, recorded=recorded))
        return samples, token_records(played.batch, recorded, opened)

    async def _probe_gap(self, learner: Learner, version: int) -> dict[str, float]:
        gap = await self.probe.gap(learner, version)
        return {} if gap is None else {names.LOGPROB_GAP_PROBE: gap}

    async def _record(
        self,
        step: int,
        played: PlayedStep,
        samples: Sequence[TrainingSample],
        tokens: Mapping[TokenKey, UpdateNumbers],
        metrics: dict[str, float],
        weights: str,
    ) -> Verdict:
        """Write the records of a step, print its line, and return the monitors' verdict.

        Raises:
            EngineError: Engine and learner hold different weights.
        """
        components = self.components
        config = components.config.at_step(step)
        records = await asyncio.to_thread(step_records, step, played, samples, config.algorithm)
        await asyncio.to_thread(components.writer.write_trajectories, step, records)
        await asyncio.to_thread(components.writer.write_tokens, step, tokens)
        metrics |= await asyncio.to_thread(training_dynamics, played.groups) | played.counts
        metrics |= self.milestones.metrics_by_value(played.groups)
        metrics |= await asyncio.to_thread(staleness, played.trajectories, step)
        metrics |= names.scheduled_values(components.config.scheduled_values(step))
        metrics[names.TIME_ROLLOUT] = played.seconds
        metrics[names.TIME_REWARD] = played.reward_seconds
        metrics |= components.counters()
        verdict = await asyncio.to_thread(self.monitors.observe, step, metrics, records, tokens)
        components.writer.write_metrics(step, {**metrics, **verdict.metrics}, weights=weights)
        components.console.step(step + 1, config.run.steps, metrics, groups=played.groups)
        if step == 0 and played.groups:
            signal = LearningSignal.measure(played.groups, config.reward_comparison)
            for line in signal.lines():
                components.console.line(f"first step: {line}")
        elif names.LOSS not in metrics and (missing := describe_missing_signal(played.groups)):  # no policy update
            components.console.line(missing)
        warning = self.comparison.require_match(step, metrics)
        for text in (*((warning,) if warning else ()), *verdict.warnings):
            components.console.warning(text)
        return verdict
