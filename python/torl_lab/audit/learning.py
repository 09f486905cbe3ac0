"""The check of the learner's metrics that follow from the records: counts, loss and learning rate."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Self

from torl.run.config import AlgorithmConfig, TrainConfig
from torl.run.records import metric_names as names
from torl.run.records.rows import TrajectoryRecord
from torl.run.records.tokens import TokenKey
from torl_lab.audit.checks import Check
from torl_lab.audit.history import RunHistory
from torl_lab.audit.naive.batches import naive_imitated, naive_loss_weights, naive_mini_batches
from torl_lab.audit.naive.learner import is_clipping_loss, is_ratio_loss, naive_learning_rate
from torl_lab.audit.naive.masks import any_mask, naive_masks

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


@dataclass(frozen=True, slots=True)
class LearnedBatch:
    """The trajectories of a step's batch as the learner has them.

    Attributes:
        episodes: Trajectories of each episode of the batch.
        counts: Numbers of masked trajectories, by metric.
        masked: Whether each trajectory is masked, over all episodes.
        tokens: Number of tokens with a loss of each trajectory.
        imitated: Number of imitated tokens of each trajectory.
        learned: Places of the trajectories that an optimizer step of the policy has.
    """

    episodes: Sequence[Sequence[TrajectoryRecord]]
    counts: Mapping[str, float]
    masked: Sequence[bool]
    tokens: Sequence[int]
    imitated: Sequence[int]
    learned: frozenset[int]

    @classmethod
    def from_records(cls, records: Sequence[TrajectoryRecord], step: int, config: TrainConfig) -> Self:
        """Collect the batch of a step from its records, with the grades that it learns from (`trained_records`)."""
        algorithm = config.algorithm
        episodes = [record.episode_trajectories for record in records if record.advantage is not None]
        batch = [each for trajectories in episodes for each in trajectories]
        masks = naive_masks(batch, config.selection)
        counts = {names.masked(name): float(sum(mask)) for name, mask in masks.items()}
        masked = any_mask(masks, len(batch))
        pairs = list(zip(batch, masked, strict=True))
        tokens = [0 if hidden else each.trajectory.loss_mask_T.tolist().count(True) for each, hidden in pairs]
        imitated = [0 if hidden else naive_imitated(each, algorithm) for each, hidden in pairs]
        learned = frozenset(
            index
            for index, record in enumerate(batch)
            if imitated[index] or (tokens[index] and (algorithm.learns_without_advantage or _has_advantage(record)))
        )
        if step < config.critic_only_steps:
            learned = frozenset()
        return cls(episodes, counts, masked, tokens, imitated, learned)

    @property
    def keys(self) -> list[TokenKey]:
        """Keys of all trajectories in the learner's numbers of tokens."""
        mains = [(len(each), each[-1].trajectory) for each in self.episodes]
        return [TokenKey(main.group_id, main.sample_index, branch) for count, main in mains for branch in range(count)]

    @property
    def records(self) -> list[TrajectoryRecord]:
        """Records of all trajectories."""
        return [each for trajectories in self.episodes for each in trajectories]

    @property
    def lengths(self) -> list[int]:
        """Number of tokens of each trajectory, prompts included."""
        return [len(each.trajectory.prompt.token_ids) + len(each.trajectory.token_ids_T) for each in self.records]

    def mini_batches(self, step: int, config: TrainConfig, model: Literal["policy", "critic"]) -> list[list[int]]:
        """Return the places of the trajectories in each mini-batch of the policy or of the critic."""
        settings = config.algorithm if model == "policy" else config.critic
        sizes = [len(trajectories) for trajectories in self.episodes]
        return naive_mini_batches(sizes, settings.epochs, settings.mini_batches, config.run.seed, step, model)

    def parts(self, step: int, config: TrainConfig) -> list[list[int]]:
        """Return the places of the learned trajectories in each optimizer step of the policy that is taken."""
        parts = self.mini_batches(step, config, "policy")
        found = [[index for index in part if index in self.learned] for part in parts]
        return [part for part in found if part]


def batch_metrics(batch: LearnedBatch, step: int, config: TrainConfig) -> dict[str, float]:
    """Return the numbers of masked trajectories, and the learner's counts and loss, from the batch of a step."""
    algorithm, learned, counts = config.algorithm, sorted(batch.learned), dict(batch.counts)
    if not learned:
        return counts | {names.UPDATES: 0.0}
    parts = batch.parts(step, config)
    learner: dict[str, float] = {
        "samples": algorithm.epochs * len(learned),
        "sampled_tokens": algorithm.epochs * sum(batch.tokens[index] for index in learned),
        "tokens": algorithm.epochs * sum(batch.lengths[index] for index in learned),
        "updates": len(parts),
        "on_policy_fraction": statistics.fmean(_on_policy(batch, part, step) for part in parts),
    }
    if imitated := sum(batch.imitated[index] for index in learned):
        learner["imitated_tokens"] = algorithm.epochs * imitated
    if not algorithm.needs_old_logprobs and is_clipping_loss(algorithm):
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
    taken = sum(not learned.isdisjoint(part) for part in batch.mini_batches(step, config, "critic"))
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


def _has_advantage(record: TrajectoryRecord) -> bool:
    """Whether a trajectory has an advantage other than 0."""
    numbers = record.token_arrays.get("advantages")
    return bool(record.advantage) if numbers is None else bool(numbers[record.trajectory.loss_mask_T].any())


def _has_known_loss(algorithm: AlgorithmConfig) -> bool:
    """Whether the loss of a step follows from its advantages: one optimizer step, and no other term."""
    return (
        is_ratio_loss(algorithm)
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
    weights = naive_loss_weights([sum(count for count, _ in episode) for episode in of_episodes], algorithm)
    sums = [sum(count * advantage for count, advantage in episode) for episode in of_episodes]
    return -sum(weight * total for weight, total in zip(weights, sums, strict=True))
