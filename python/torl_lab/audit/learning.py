"""The check of the learner's metrics that follow from the records: counts, loss and learning rate."""

import math
import statistics
from collections.abc import Sequence

from torl.run.config import AlgorithmConfig
from torl.run.records import metric_names as names
from torl_lab.audit.batch import LearnedBatch
from torl_lab.audit.checks import Check
from torl_lab.audit.history import RunHistory
from torl_lab.audit.naive.batches import naive_loss_weights
from torl_lab.audit.naive.learner import is_clipping_loss, is_ratio_loss, naive_learning_rate

_TOLERANCE = 1e-6


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
    right = isinstance(found, float) and math.isclose(expected, found, rel_tol=_TOLERANCE)
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
