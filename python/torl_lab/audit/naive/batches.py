"""Naive mini-batches, recorded groups, imitated tokens and weights of the loss."""

import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from torl.base.seeds import derive_seed
from torl.base.types import ScoredTrajectory
from torl.run.config import AlgorithmConfig, TrainConfig
from torl.run.records.rows import TrajectoryRecord
from torl_lab.audit.naive.components import formula_or_component


def naive_mini_batches(
    episodes: Sequence[int], epochs: int, parts: int, seed: int, step: int, model: Literal["policy", "critic"]
) -> list[list[int]]:
    """Return the places of the trajectories of each optimizer step of a training step.

    Each epoch draws an order of the episodes, and cuts it into parts whose sizes differ by at most one, the larger ones
    first.

    Args:
        episodes: Number of trajectories of each episode of the batch.
        epochs: Number of passes over the batch.
        parts: Number of mini-batches of an epoch, at most one for each episode.
        seed: Seed of the run.
        step: Training step.
        model: Model that is trained.
    """
    firsts = [sum(episodes[:number]) for number in range(len(episodes))]
    count = min(parts, len(episodes))
    batches = []
    for epoch in range(epochs):
        digest = hashlib.blake2b(repr(((seed, step, model), epoch)).encode(), digest_size=8).digest()
        order = np.random.default_rng(int.from_bytes(digest, "big")).permutation(len(episodes)).tolist()
        for part in range(count):
            size = len(episodes) // count + (part < len(episodes) % count)
            chosen, order = order[:size], order[size:]
            batches.append(sorted(firsts[each] + place for each in chosen for place in range(episodes[each])))
    return batches


def naive_recorded_groups(learned: Sequence[str], step: int, config: TrainConfig) -> set[str]:
    """Return the groups whose tokens a run records, by `run.token_groups` and its seed.

    Args:
        learned: Groups that an optimizer step has, in the order of the batch.
        step: Training step.
        config: Configuration of the step.
    """
    wanted = config.run.token_groups
    if wanted == "all" or wanted >= len(learned):
        return set(learned)
    return set(random.Random(derive_seed(config.run.seed, step, "recorded groups")).sample(list(learned), wanted))


def naive_imitated(record: TrajectoryRecord, algorithm: AlgorithmConfig) -> int:
    """Return the number of tokens of a response that the algorithm imitates."""
    if algorithm.imitation is None:
        return 0
    member = ScoredTrajectory(record.trajectory, record.grade, record.grade.reward)
    weights = formula_or_component(algorithm.imitation, NAIVE_IMITATIONS)(member)
    return len([weight for weight in weights if weight != 0])


def naive_loss_weights(tokens: Sequence[int], algorithm: AlgorithmConfig) -> list[float]:
    """Return the weight of a token's loss in each episode of a batch, from their numbers of tokens with a loss."""
    weights = formula_or_component(algorithm.aggregation, NAIVE_AGGREGATIONS)(np.array(tokens, np.int64))
    return [float(weight) for weight in weights]


def _by_token(tokens: Sequence[int]) -> list[float]:
    return [1 / sum(tokens) if count else 0.0 for count in tokens]


def _by_sequence(tokens: Sequence[int]) -> list[float]:
    present = len([count for count in tokens if count])
    return [1 / (present * count) if count else 0.0 for count in tokens]


def _by_fixed_length(tokens: Sequence[int], length: int) -> list[float]:
    present = len([count for count in tokens if count])
    return [1 / (present * length) if count else 0.0 for count in tokens]


def _observations(member: ScoredTrajectory, weight: float) -> list[float]:
    return [0.0 if is_sampled else weight for is_sampled in member.trajectory.loss_mask_T.tolist()]


def _correct_responses(member: ScoredTrajectory, weight: float) -> list[float]:
    sampled = member.trajectory.loss_mask_T.tolist()
    return [weight if is_sampled and member.grade.correct else 0.0 for is_sampled in sampled]


_IMITATION = "torl.components.algorithms.imitation"
NAIVE_IMITATIONS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {f"{_IMITATION}:observations": _observations, f"{_IMITATION}:correct_responses": _correct_responses}
)
"""The formula of each of torl's imitations, by the place of its function."""
_AGGREGATION = "torl.components.algorithms.aggregation"
NAIVE_AGGREGATIONS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        f"{_AGGREGATION}:by_token": _by_token,
        f"{_AGGREGATION}:by_sequence": _by_sequence,
        f"{_AGGREGATION}:by_fixed_length": _by_fixed_length,
    }
)
"""The formula of each of torl's aggregations, by the place of its function."""
