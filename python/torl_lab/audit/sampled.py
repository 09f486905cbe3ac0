"""The trajectories of a run whose log-probabilities and values the audit computes again."""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

import numpy as np

from torl.run.config import LearningConfig
from torl.run.records import metric_names as names
from torl.run.records.rows import TrajectoryRecord
from torl.run.records.tokens import TokenKey, keyed
from torl.training.health import engine_options, stale_logprobs
from torl.training.policy_versions import has_weights
from torl_lab.audit.advantages import check_critic_values
from torl_lab.audit.batch import LearnedBatch
from torl_lab.audit.checks import Check
from torl_lab.audit.history import RunHistory
from torl_lab.audit.logprobs import LIMITS, Sample, check_references, check_weights

Kept = TypeVar("Kept")


class SampledTrajectories:
    """The first trajectories of each policy version whose weights are available, and of each reference model."""

    def __init__(self, history: RunHistory, count: int) -> None:
        """Collect up to `count` trajectories of each version."""
        self._history, self._per_version = history, count
        self._by_version: defaultdict[int, list[Sample]] = defaultdict(list)
        self._by_learner: defaultdict[int, list[Sample]] = defaultdict(list)
        self._by_reference: defaultdict[str, list[Sample]] = defaultdict(list)
        self._by_critic: defaultdict[int, list[TrajectoryRecord]] = defaultdict(list)
        self._has_weights: dict[int, bool] = {}
        self._skip_reason = ""
        self._after_other_prompts = False

    def add_step(self, batch: LearnedBatch, learned: Collection[TokenKey]) -> None:
        """Add trajectories of a step, with the log-probabilities of the learner and of the reference model, if any.

        In `learned` trajectories, which an optimizer step has, engine and learner differ by at most the gap in the
        metrics, in any precision of the engine.
        """
        step, config = batch.step, batch.config
        temperature, top_p, kl = config.rollout.temperature, config.rollout.top_p, config.algorithm.kl
        gap = self._history.rows.steps.get(step, {}).get(names.LOGPROB_GAP_MAX)
        limit = gap + LIMITS[config.learner.dtype][1] if isinstance(gap, float) and top_p >= 1 else math.inf
        for key, record in keyed(batch.records):
            self._add_sampled(record, config, temperature, top_p, {step: limit} if key in learned else {})
            values = record.token_arrays.get("values")
            if values is not None and (step == 0 or values.any()):  # a masked trajectory has zeros
                self._add(self._by_critic, step, record)
            for name in ("old_logprobs", "ref_logprobs"):
                numbers = record.token_arrays.get(name)
                if numbers is None or not numbers.any():  # a masked trajectory has zeros
                    continue
                sample = Sample(record, numbers, record.trajectory.loss_mask_T, temperature, config.learner.dtype)
                if name == "old_logprobs":
                    self._add(self._by_learner, step, sample)
                elif kl.prompt is not None:
                    self._after_other_prompts = True
                elif kl.path is None:
                    self._add(self._by_learner, 0, sample)
                elif len(self._by_reference[kl.path]) < self._per_version:
                    self._by_reference[kl.path].append(sample)

    def add_updates(self, batch: LearnedBatch) -> None:
        """Add the learner's log-probabilities before the first optimizer step of a training step."""
        config = batch.config
        for key, record in keyed(batch.records):
            found, mask_T = batch.numbers.get(key), record.trajectory.loss_mask_T
            name = "old_logprobs" if found is not None and "old_logprobs" in found.arrays else "learner_logprobs"
            if found is None or (name == "learner_logprobs" and found.update > 0):
                continue
            if len(found.arrays.get(name, ())) == mask_T.sum():
                logprobs_T = np.zeros(len(mask_T), np.float32)
                logprobs_T[mask_T] = found.arrays[name]
                sample = Sample(record, logprobs_T, mask_T, config.rollout.temperature, config.learner.dtype)
                self._add(self._by_learner, batch.step, sample)

    def add_evaluation(self, episodes: Sequence[TrajectoryRecord], step: int, *, greedy: bool) -> None:
        """Add trajectories of an evaluation. Log-probabilities of greedy turns have temperature 1."""
        config = self._history.config_at(step)
        rollout = config.evaluation.apply_to(config.rollout)
        temperature, top_p = (1.0, 1.0) if greedy else (rollout.temperature, rollout.top_p)
        for _, record in keyed(episodes):
            self._add_sampled(record, config, temperature, top_p, {})

    @property
    def count(self) -> int:
        """The number of collected trajectories."""
        policies = (self._by_version, self._by_learner, self._by_reference)
        samples = sum(len(each) for group in policies for each in group.values())
        return samples + sum(map(len, self._by_critic.values()))

    def check(self, logprobs: Check, export: Check, on_compared: Callable[[], None]) -> None:
        """Check the log-probabilities of the collected trajectories, and the weights of the exported model.

        `on_compared` is called after each trajectory, in the thread of the call.
        """
        config = self._history.configs[-1][1]
        if self._skip_reason:
            logprobs.add_note(self._skip_reason)
        if self._per_version and config.plays_episodes and not any(self._by_version.values()):
            logprobs.add_note("no checkpoint has the weights of these steps")
        if self._after_other_prompts:
            logprobs.add_note("the reference model's were computed after the prompts of algorithm.kl.prompt")
        if self._per_version:
            groups = [self._by_version, self._by_learner]
            gaps = check_weights(logprobs, export, self._history, groups, on_compared)
            gaps += check_references(logprobs, self._by_reference, on_compared)
            check_critic_values(logprobs, self._history.directory, config, self._by_critic, on_compared)
            logprobs.mean_difference = statistics.fmean(gaps) if gaps else None

    def _add_sampled(
        self,
        record: TrajectoryRecord,
        config: LearningConfig,
        temperature: float,
        top_p: float,
        limits: Mapping[int, float],
    ) -> None:
        """Add the tokens of each policy version; `limits` are those of |difference| of versions, if any."""
        trajectory, dtype = record.trajectory, engine_options(config).dtype
        for version in map(int, np.unique(trajectory.policy_versions_T)):
            if version > 0 and (reason := stale_logprobs(config)) is not None:
                self._skip_reason = f"{reason}; only policy version 0 is compared"
            elif version >= 0:
                mask, limit = trajectory.policy_versions_T == version, limits.get(version, math.inf)
                sample = Sample(record, trajectory.rollout_logprobs_T, mask, temperature, dtype, top_p, limit)
                self._add(self._by_version, version, sample)

    def _add(self, samples: dict[int, list[Kept]], version: int, sample: Kept) -> None:
        if version not in self._has_weights:
            self._has_weights[version] = has_weights(self._history.directory, version)
        if self._has_weights[version] and len(samples[version]) < self._per_version:
            samples[version].append(sample)
