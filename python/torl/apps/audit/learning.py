"""The check of the learner's metrics that follow from the records: counts, loss and learning rate."""

import math
import statistics
from collections.abc import Sequence

import numpy as np

from torl.algorithms.losses.policy import clipped_policy_loss, gspo_policy_loss
from torl.apps.audit.advantages import recorded_masks
from torl.apps.audit.checks import Check
from torl.apps.audit.formulas import naive_learning_rate
from torl.apps.audit.history import RunHistory
from torl.config import AlgorithmConfig, TrainConfig
from torl.learner.optimizer_steps import mini_batches
from torl.records import metric_names as names
from torl.records.rows import TrajectoryRecord
from torl.types import TrainingSample

_TOLERANCE = 1e-6
_UPDATES = "learner/updates"
_RATIO_LOSSES = (clipped_policy_loss, gspo_policy_loss)
"""Policy losses whose value is the negative advantage if the policy has not changed yet."""


def check_learning_rate(check: Check, history: RunHistory, step: int) -> None:
    """Compare the learning rate of a step with the schedule, after the optimizer steps that were taken before."""
    rows = [history.step_rows.get(each, {}) for each in range(step + 1)]
    updates = [count for row in rows if isinstance(count := row.get(_UPDATES), int | float)]
    if len(updates) < len(rows) or not updates[-1]:
        return
    config, first, last = history.config_at(step), int(sum(updates[:-1])), int(sum(updates))
    total = (config.total_steps - config.critic_only_steps) * config.algorithm.optimizer_steps
    expected = statistics.fmean(naive_learning_rate(index, total, config.learner) for index in range(first, last))
    found = rows[-1].get(names.LEARNING_RATE)
    right = isinstance(found, float) and math.isclose(expected, found, rel_tol=_TOLERANCE)
    check.add(right, f"step {step}, {names.LEARNING_RATE}: expected {expected:.6g}, found {found!r}")


def batch_metrics(records: Sequence[TrajectoryRecord], step: int, config: TrainConfig) -> dict[str, float]:
    """Return the numbers of masked trajectories, and the learner's counts and loss, from the records of a step."""
    masks, algorithm = recorded_masks(records, config), config.algorithm
    counts = {names.masked(name): float(mask.sum()) for name, mask in masks.items()}
    if algorithm.imitation is not None:
        return counts  # imitated tokens count as well
    episodes = [record.episode_trajectories for record in records if record.advantage is not None]
    batch = [each for trajectories in episodes for each in trajectories]
    masked = np.any([*masks.values(), np.zeros(len(batch), np.bool_)], axis=0)
    tokens = [
        0 if hidden else int(each.trajectory.loss_mask_T.sum()) for each, hidden in zip(batch, masked, strict=True)
    ]
    learned = [
        index
        for index, record in enumerate(batch)
        if tokens[index] and (algorithm.learns_without_advantage or _has_advantage(record))
    ]
    if not learned or step < config.critic_only_steps:
        return counts | {_UPDATES: 0.0}
    samples = batch_samples(episodes)
    key = (config.run.seed, step, "policy")
    parts = mini_batches(samples, algorithm.epochs, algorithm.mini_batches, key)
    learner: dict[str, float] = {
        "samples": algorithm.epochs * len(learned),
        "sampled_tokens": algorithm.epochs * sum(tokens[index] for index in learned),
        "tokens": algorithm.epochs * sum(len(samples[index]) for index in learned),
        "updates": sum(not set(learned).isdisjoint(part) for part in parts),
    }
    if _has_known_loss(algorithm):
        learner["loss"] = _first_loss(episodes, tokens, algorithm)
    return counts | names.learner_metrics(learner)


def _has_advantage(record: TrajectoryRecord) -> bool:
    """Whether a trajectory has an advantage other than 0."""
    numbers = record.token_arrays.get("advantages")
    return bool(record.advantage) if numbers is None else bool(numbers[record.trajectory.loss_mask_T].any())


def batch_samples(episodes: Sequence[Sequence[TrajectoryRecord]]) -> list[TrainingSample]:
    """Return the samples of a batch from the trajectories of each of its episodes."""
    return [_sample(each, number) for number, trajectories in enumerate(episodes) for each in trajectories]


def _sample(record: TrajectoryRecord, episode: int) -> TrainingSample:
    trajectory = record.trajectory
    prompt = np.asarray(trajectory.prompt.token_ids, np.int32)
    return TrainingSample(
        token_ids=np.concatenate([prompt, trajectory.token_ids_T]),
        loss_mask=np.concatenate([np.zeros(len(prompt), np.bool_), trajectory.loss_mask_T]),
        rollout_logprobs=np.concatenate([np.zeros(len(prompt), np.float32), trajectory.rollout_logprobs_T]),
        episode=episode,
    )


def _has_known_loss(algorithm: AlgorithmConfig) -> bool:
    """Whether the loss of a step follows from its advantages: one optimizer step, and no other term."""
    return (
        algorithm.policy_loss.target in _RATIO_LOSSES
        and not algorithm.needs_old_logprobs
        and not algorithm.learns_without_advantage
        and algorithm.importance_correction is None
    )


def _first_loss(
    episodes: Sequence[Sequence[TrajectoryRecord]], tokens: Sequence[int], algorithm: AlgorithmConfig
) -> float:
    """Return the loss of the first optimizer step of a step: the weighted sum of negative advantages.

    Args:
        episodes: Trajectories of each episode of the batch.
        tokens: Number of tokens with a loss of each trajectory, over all episodes.
        algorithm: Algorithm of the run.
    """
    counts = iter(tokens)
    of_episodes = [[(next(counts), record.advantage or 0.0) for record in trajectories] for trajectories in episodes]
    lengths = np.array([sum(count for count, _ in episode) for episode in of_episodes], np.int64)
    weights: list[float] = algorithm.aggregation.bind()(lengths).tolist()
    sums = [sum(count * advantage for count, advantage in episode) for episode in of_episodes]
    return -sum(weight * total for weight, total in zip(weights, sums, strict=True))
