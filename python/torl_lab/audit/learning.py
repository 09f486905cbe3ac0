"""The checks of the learner's metrics: what follows from the records, and bounds by the numbers of tokens.

The numbers of all groups would give the values; the recorded numbers of some groups give bounds: each metric is a mean
over the tokens of an optimizer step, and then over the optimizer steps.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from torl.run.config import AlgorithmConfig
from torl.run.records import metric_names as names
from torl_lab.audit.batch import LearnedBatch
from torl_lab.audit.checks import Check
from torl_lab.audit.history import RunHistory
from torl_lab.audit.naive.learner import Array, is_clipping_loss, is_ratio_loss, naive_learning_rate, naive_loss_weights

_RELATIVE: Final = 1e-4  # of sums of float32 numbers
_ABSOLUTE: Final = 1e-6
_MIN_RATE: Final = 1e-7  # above it, AdamW changes some weight in float32


def check_learning_rate(check: Check, history: RunHistory, step: int) -> None:
    """Compare the learning rate of a step with the schedule, after the optimizer steps that were taken before."""
    rows = [history.rows.steps.get(each, {}) for each in range(step + 1)]
    updates = [count for row in rows if isinstance(count := row.get(names.UPDATES), int | float)]
    if len(updates) < len(rows) or not updates[-1]:
        return
    config, first, last = history.config_at(step), int(sum(updates[:-1])), int(sum(updates))
    total = (config.total_steps - config.critic_only_steps) * config.algorithm.optimizer_steps
    expected = statistics.fmean(naive_learning_rate(index, total, config.learner) for index in range(first, last))
    found = rows[-1].get(names.LEARNING_RATE)
    right = isinstance(found, float) and math.isclose(expected, found, rel_tol=_ABSOLUTE)
    check.add(right, f"step {step}, {names.LEARNING_RATE}: expected {expected:.6g}, found {found!r}")


def batch_metrics(batch: LearnedBatch) -> dict[str, float]:
    """Return the numbers of masked trajectories, and the learner's counts and loss."""
    algorithm, learned = batch.config.algorithm, batch.learned
    counts = {names.masked(name): float(sum(mask)) for name, mask in batch.masks.items()}
    if not learned:
        return counts | {names.UPDATES: 0.0}
    learner: dict[str, float] = {
        "samples": algorithm.epochs * len(learned),
        "sampled_tokens": algorithm.epochs * sum(batch.tokens[index] for index in learned),
        "tokens": algorithm.epochs * sum(batch.lengths[index] for index in learned),
        "updates": len(batch.parts),
        "on_policy_fraction": statistics.fmean(_on_policy(batch, part) for part in batch.parts),
    }
    if imitated := sum(batch.imitated[index] for index in learned):
        learner["imitated_tokens"] = algorithm.epochs * imitated
    if not algorithm.needs_old_logprobs and is_clipping_loss(algorithm):
        learner |= {"clip_fraction": 0.0, "dual_clip_fraction": 0.0, "approximate_kl": 0.0}  # the ratio is 1
    if _has_known_loss(algorithm):
        learner["loss"] = _first_loss(batch)
    return counts | names.learner_metrics(learner)


def _on_policy(batch: LearnedBatch, part: Sequence[int]) -> float:
    """Return the fraction of the tokens of an optimizer step that the trained policy itself sampled."""
    unmasked = [batch.trajectories[index].trajectory for index in part if batch.tokens[index]]
    own = (int((each.policy_versions_T[each.loss_mask_T] == batch.step).sum()) for each in unmasked)
    return sum(own) / max(1, sum(batch.tokens[index] for index in part))


def critic_metrics(batch: LearnedBatch, steps_before: int | None) -> tuple[dict[str, float], int]:
    """Return the critic's counts and learning rate in a step, and the number of its optimizer steps.

    `steps_before` is the number of its optimizer steps before. None if that is unknown.
    """
    config, critic = batch.config, batch.config.critic
    learned = {index for index, count in enumerate(batch.tokens) if count}
    if not config.algorithm.needs_critic or not learned:
        return {}, 0
    taken = sum(not learned.isdisjoint(part) for part in batch.mini_batches("critic"))
    values: dict[str, float] = {
        "critic_samples": critic.epochs * len(learned),
        "critic_sampled_tokens": critic.epochs * sum(batch.tokens[index] for index in learned),
        "critic_tokens": critic.epochs * sum(batch.lengths[index] for index in learned),
    }
    if steps_before is not None:
        own = {"learning_rate": critic.learning_rate, "warmup_steps": critic.warmup_steps}
        schedule = config.learner.model_copy(update=own)
        total = config.total_steps * critic.optimizer_steps
        places = range(steps_before, steps_before + taken)
        values["critic_learning_rate"] = statistics.fmean(naive_learning_rate(each, total, schedule) for each in places)
    return names.learner_metrics(values), taken


def _has_known_loss(algorithm: AlgorithmConfig) -> bool:
    """Whether the loss of a step follows from its advantages: one optimizer step, and no other term."""
    return (
        is_ratio_loss(algorithm)
        and not algorithm.needs_old_logprobs
        and not algorithm.learns_without_advantage
        and algorithm.importance_correction is None
        and algorithm.imitation is None
    )


def _first_loss(batch: LearnedBatch) -> float:
    """Return the loss of the first optimizer step of a step: the weighted sum of negative advantages."""
    counts = iter(batch.tokens)
    episodes = [
        [(next(counts), record.advantage or 0.0) for record in each.episode_trajectories] for each in batch.episodes
    ]
    weights = naive_loss_weights([sum(count for count, _ in episode) for episode in episodes], batch.config.algorithm)
    sums = [sum(count * advantage for count, advantage in episode) for episode in episodes]
    return -sum(weight * total for weight, total in zip(weights, sums, strict=True))


def check_learner_numbers(check: Check, row: Mapping[str, Any], batch: LearnedBatch) -> None:
    """Check the metrics in a step's row that the recorded numbers of tokens bound."""
    if not batch.parts:
        return
    config, bounds = batch.config, _Bounds(check, row, batch)
    numbers = batch.numbers
    recorded = {index: numbers[key].arrays for index, key in enumerate(batch.keys) if key in numbers}
    gaps, own_gaps = {}, {}
    for index, arrays in recorded.items():
        trajectory = batch.trajectories[index].trajectory
        mask_T = trajectory.loss_mask_T
        gap = arrays.get("old_logprobs", arrays["learner_logprobs"]).astype(np.float64)
        gaps[index] = np.abs(gap - trajectory.rollout_logprobs_T[mask_T])
        own_gaps[index] = gaps[index] * (trajectory.policy_versions_T[mask_T] == batch.step)
    highest = bounds.check_maximum(names.LOGPROB_GAP_MAX, names.LOGPROB_GAP_MEAN, gaps)
    bounds.check_mean(names.LOGPROB_GAP_MEAN, gaps, highest)
    own = float(row.get(names.ON_POLICY_FRACTION) or 0.0)
    if own > 0:
        bounds.check_mean(names.LOGPROB_GAP_ON_POLICY, own_gaps, highest, divisor=own)
    kl = {index: np.expm1(gap) - gap for index, gap in gaps.items()}  # of the larger direction
    bounds.check_mean(names.LOGPROB_GAP_KL, kl, math.expm1(min(highest, 20.0)), minimum=0.0)
    if config.algorithm.epochs == 1:
        bounds.check_mean(names.ENTROPY, _arrays(recorded, "entropies"), math.inf)
        if is_clipping_loss(config.algorithm):
            bounds.check_mean(names.CLIP_FRACTION, _arrays(recorded, "clipped"), 1.0)
    if config.algorithm.importance_correction is not None:
        weights = _arrays(recorded, "importance_weights")
        bounds.check_mean(names.IMPORTANCE_WEIGHT, weights, math.inf)
        bounds.check_mean(names.IMPORTANCE_MASKED, {index: each == 0.0 for index, each in weights.items()}, 1.0)
    # A step of AdamW changes weights in float32 unless its rate is tiny or its gradient 0.
    rate, norm = (bounds.value(name) for name in (names.LEARNING_RATE, names.GRADIENT_NORM))
    moves = config.learner.dtype == "float32" and rate > _MIN_RATE and norm > 0
    bounds.check(names.CHANGED_WEIGHTS, math.nextafter(0.0, 1.0) if moves else 0.0, 1.0, exact=True)


def _arrays(recorded: Mapping[int, Mapping[str, Any]], name: str) -> dict[int, Array]:
    return {index: arrays[name].astype(np.float64) for index, arrays in recorded.items()}


class _Bounds:
    """Counts comparisons of metrics with bounds."""

    def __init__(self, check: Check, row: Mapping[str, Any], batch: LearnedBatch) -> None:
        self._check, self._row, self._batch = check, row, batch
        self._weights = dict.fromkeys(sorted(batch.learned), 0.0)  # of a token of each trajectory in the metrics
        for part in batch.parts:
            tokens = max(1, sum(batch.tokens[index] for index in part))
            for index in part:
                self._weights[index] += 1 / tokens / len(batch.parts)

    def value(self, name: str) -> float:
        """Return a metric; NaN if it is missing or no number."""
        value = self._row.get(name)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan

    def check(self, name: str, low: float, high: float, *, exact: bool = False) -> None:
        """Count a comparison of a metric with its bounds."""
        found = self.value(name)
        slack = 0.0 if exact else _ABSOLUTE + _RELATIVE * abs(found)
        right = low - slack <= found <= high + slack
        self._check.add(right, f"step {self._batch.step}, {name}: expected {low:.6g} to {high:.6g}, found {found:.6g}")

    def check_mean(
        self,
        name: str,
        arrays: Mapping[int, Array],
        ceiling: float,
        *,
        minimum: float | None = None,
        divisor: float = 1.0,
    ) -> None:
        """Check a mean over all tokens, from the numbers of some that are not negative. No other is above `ceiling`."""
        known = sum(self._weights.get(index, 0.0) * float(each.sum()) for index, each in arrays.items())
        rest = sum(weight * self._batch.tokens[index] for index, weight in self._weights.items() if index not in arrays)
        above = rest * ceiling if rest else 0.0
        self.check(name, known / divisor if minimum is None else minimum, (known + above) / divisor)

    def check_maximum(self, name: str, mean: str, arrays: Mapping[int, Array]) -> float:
        """Check a maximum over all tokens, and return it.

        A token that is not recorded and has the maximum is part of the mean.
        """
        known = max((float(each.max(initial=0.0)) for each in arrays.values()), default=0.0)
        others = [
            weight for index, weight in self._weights.items() if index not in arrays and self._batch.tokens[index]
        ]
        self.check(name, known, max(known, self.value(mean) / min(others)) if others else known)
        return self.value(name)
