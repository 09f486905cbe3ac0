"""The check of the learner's metrics that follow from the records: counts, loss and learning rate."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from torl.base.types import ScoredTrajectory, TrainingSample
from torl.components.algorithms.losses.policy import cispo_policy_loss, clipped_policy_loss, gspo_policy_loss
from torl.learner.optimizer_steps import mini_batches
from torl.run.config import AlgorithmConfig, TrainConfig
from torl.run.records import metric_names as names
from torl.run.records.rows import TrajectoryRecord
from torl.run.records.tokens import TokenKey
from torl_lab.audit.advantages import recorded_masks
from torl_lab.audit.checks import Check
from torl_lab.audit.formulas import naive_learning_rate
from torl_lab.audit.history import RunHistory

_TOLERANCE = 1e-6
_RATIO_LOSSES = (clipped_policy_loss, gspo_policy_loss)
"""Policy losses whose value is the negative advantage if the policy has not changed yet."""
CLIPPING_LOSSES = (*_RATIO_LOSSES, cispo_policy_loss)
"""Policy losses with a clipping that the audit computes again."""


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


@dataclass(frozen=True, slots=True)
class LearnedBatch:
    """The trajectories of a step's batch as the learner has them.

    Attributes:
        episodes: Trajectories of each episode of the batch.
        counts: Numbers of masked trajectories, by metric.
        tokens: Number of tokens with a loss of each trajectory, over all episodes.
        imitated: Number of imitated tokens of each trajectory.
        learned: Places of the trajectories that an optimizer step of the policy has.
        samples: Samples of all trajectories.
    """

    episodes: Sequence[Sequence[TrajectoryRecord]]
    counts: Mapping[str, float]
    tokens: Sequence[int]
    imitated: Sequence[int]
    learned: frozenset[int]
    samples: Sequence[TrainingSample]

    @classmethod
    def from_records(cls, records: Sequence[TrajectoryRecord], step: int, config: TrainConfig) -> Self:
        """Collect the batch of a step from its records, with the grades that it learns from (`trained_records`)."""
        masks, algorithm = recorded_masks(records, config), config.algorithm
        counts = {names.masked(name): float(mask.sum()) for name, mask in masks.items()}
        episodes = [record.episode_trajectories for record in records if record.advantage is not None]
        batch = [each for trajectories in episodes for each in trajectories]
        masked = np.any([*masks.values(), np.zeros(len(batch), np.bool_)], axis=0).tolist()
        pairs = list(zip(batch, masked, strict=True))
        tokens = [0 if hidden else int(each.trajectory.loss_mask_T.sum()) for each, hidden in pairs]
        imitated = [0 if hidden else _count_imitated(each, algorithm) for each, hidden in pairs]
        learned = frozenset(
            index
            for index, record in enumerate(batch)
            if imitated[index] or (tokens[index] and (algorithm.learns_without_advantage or _has_advantage(record)))
        )
        if step < config.critic_only_steps:
            learned = frozenset()
        return cls(episodes, counts, tokens, imitated, learned, batch_samples(episodes))

    @property
    def keys(self) -> list[TokenKey]:
        """Keys of all trajectories in the learner's numbers of tokens."""
        mains = [(len(each), each[-1].trajectory) for each in self.episodes]
        return [TokenKey(main.group_id, main.sample_index, branch) for count, main in mains for branch in range(count)]

    @property
    def records(self) -> list[TrajectoryRecord]:
        """Records of all trajectories."""
        return [each for trajectories in self.episodes for each in trajectories]

    def parts(self, step: int, config: TrainConfig) -> list[list[int]]:
        """Return the places of the learned trajectories in each optimizer step of the policy that is taken."""
        key = (config.run.seed, step, "policy")
        parts = mini_batches(self.samples, config.algorithm.epochs, config.algorithm.mini_batches, key)
        found = [[index for index in part if index in self.learned] for part in parts]
        return [part for part in found if part]


def _count_imitated(record: TrajectoryRecord, algorithm: AlgorithmConfig) -> int:
    if algorithm.imitation is None:
        return 0
    scored = ScoredTrajectory(record.trajectory, record.grade, record.grade.reward)
    return int(np.count_nonzero(algorithm.imitation.bind()(scored)))


def batch_metrics(batch: LearnedBatch, step: int, config: TrainConfig) -> dict[str, float]:
    """Return the numbers of masked trajectories, and the learner's counts and loss, from the batch of a step."""
    algorithm, learned, counts = config.algorithm, sorted(batch.learned), dict(batch.counts)
    if not learned:
        return counts | {names.UPDATES: 0.0}
    parts = batch.parts(step, config)
    learner: dict[str, float] = {
        "samples": algorithm.epochs * len(learned),
        "sampled_tokens": algorithm.epochs * sum(batch.tokens[index] for index in learned),
        "tokens": algorithm.epochs * sum(len(batch.samples[index]) for index in learned),
        "updates": len(parts),
        "on_policy_fraction": statistics.fmean(_on_policy(batch, part, step) for part in parts),
    }
    if imitated := sum(batch.imitated[index] for index in learned):
        learner["imitated_tokens"] = algorithm.epochs * imitated
    if not algorithm.needs_old_logprobs and algorithm.policy_loss.target in CLIPPING_LOSSES:
        learner |= {"clip_fraction": 0.0, "dual_clip_fraction": 0.0, "approximate_kl": 0.0}  # the ratio is 1
    if _has_known_loss(algorithm):
        learner["loss"] = _first_loss(batch.episodes, batch.tokens, algorithm)
    return counts | names.learner_metrics(learner)


def _on_policy(batch: LearnedBatch, part: Sequence[int], step: int) -> float:
    """Return the fraction of the tokens of an optimizer step that the trained policy itself sampled."""
    trajectories = [(batch.records[index].trajectory, batch.tokens[index]) for index in part]
    tokens = sum(count for _, count in trajectories)
    own = (int((each.policy_versions_T[each.loss_mask_T] == step).sum()) for each, count in trajectories if count)
    return sum(own) / max(1, tokens)


def critic_metrics(
    batch: LearnedBatch, step: int, config: TrainConfig, steps_before: int | None
) -> tuple[dict[str, float], int]:
    """Return the critic's counts and learning rate in a step, and the number of its optimizer steps.

    Args:
        batch: Batch of the step.
        step: Step.
        config: Configuration of the step.
        steps_before: Number of the critic's optimizer steps before. None if it is unknown.
    """
    critic, learned = config.critic, {index for index, count in enumerate(batch.tokens) if count}
    if not config.algorithm.needs_critic or not learned:
        return {}, 0
    parts = mini_batches(batch.samples, critic.epochs, critic.mini_batches, (config.run.seed, step, "critic"))
    taken = sum(not learned.isdisjoint(part) for part in parts)
    values: dict[str, float] = {
        "critic_samples": critic.epochs * len(learned),
        "critic_sampled_tokens": critic.epochs * sum(batch.tokens[index] for index in learned),
        "critic_tokens": critic.epochs * sum(len(batch.samples[index]) for index in learned),
    }
    if steps_before is not None:
        own = {"learning_rate": critic.learning_rate, "warmup_steps": critic.warmup_steps}
        schedule = config.learner.model_copy(update=own)
        total = config.total_steps * critic.optimizer_steps
        places = range(steps_before, steps_before + taken)
        values["critic_learning_rate"] = statistics.fmean(naive_learning_rate(each, total, schedule) for each in places)
    return names.learner_metrics(values), taken


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
        and algorithm.imitation is None
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
