"""Naive formulas of the learner: mini-batches, weights of the loss, rates, divergences, importance and clipping."""

import hashlib
import math
import random
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from torl.base.seeds import derive_seed
from torl.base.types import ScoredTrajectory
from torl.run.config import AlgorithmConfig, LearnerConfig, TrainConfig
from torl.run.records.rows import TrajectoryRecord
from torl_lab.audit.naive import formula_or_component, location_of

Array = npt.NDArray[np.float64]

_LIMIT: Final = 20.0  # of log ratios, as the losses clamp them
_EDGE: Final = 1e-4  # relative distance to a bound below which rounding decides
_LOSSES, _CORRECTIONS = "torl.components.algorithms.losses.policy", "torl.components.algorithms.losses.correction"
_GSPO, _CISPO = f"{_LOSSES}:gspo_policy_loss", f"{_LOSSES}:cispo_policy_loss"
_RATIO_LOSSES = (f"{_LOSSES}:clipped_policy_loss", _GSPO)


def is_ratio_loss(algorithm: AlgorithmConfig) -> bool:
    """Whether the value of the policy loss is the negative advantage if the policy has not changed yet."""
    return location_of(algorithm.policy_loss.target) in _RATIO_LOSSES


def is_clipping_loss(algorithm: AlgorithmConfig) -> bool:
    """Whether the policy loss has a clipping that `naive_clipped` computes."""
    return is_ratio_loss(algorithm) or location_of(algorithm.policy_loss.target) == _CISPO


NAIVE_KL: Mapping[str, Callable[[float], float]] = MappingProxyType(
    {
        "k1": lambda x: -x,
        "k2": lambda x: x * x / 2,
        "k3": lambda x: math.exp(x) - x - 1,
        "unbiased": lambda x: math.exp(x) - x - 1,
    }
)
"""Built-in KL estimators of the log ratio x = ref_logprob - logprob before an update, by name."""


def naive_kl(estimator: str, old_logprob: float, ref_logprob: float) -> float:
    """Return Schulman's k1, k2 or k3 with the log ratio clamped to +-20."""
    x = min(max(ref_logprob - old_logprob, -_LIMIT), _LIMIT)
    return NAIVE_KL[estimator](x)


def naive_learning_rate(index: int, total: int, config: LearnerConfig) -> float:
    """Return the learning rate after `index` of `total` optimizer steps: warmup, then constant, or a decay to 0."""
    warmup = config.warmup_steps
    if index < warmup:
        return (index + 1) / (warmup + 1) * config.learning_rate
    rest = max(0.0, 1 - (index - warmup) / max(1, total - warmup))
    factors = {"constant": 1.0, "linear": rest, "cosine": math.sin(rest * math.pi / 2) ** 2}
    return factors[config.lr_schedule] * config.learning_rate


def naive_weights(algorithm: AlgorithmConfig, old: Array, rollout: Array) -> Array | None:
    """Return the weights of a built-in importance correction for one sequence; None for others."""
    choice = algorithm.importance_correction
    name = "" if choice is None else location_of(choice.target).removeprefix(f"{_CORRECTIONS}:")
    if choice is None or name not in ("tis", "icepop", "mis"):
        return None
    bounds = choice.options.model_dump()
    ratios = [math.exp(min(_LIMIT, max(-_LIMIT, each))) for each in old - rollout]
    if name == "tis":
        return np.array([min(ratio, bounds["high"]) for ratio in ratios])
    if name == "mis":
        total = math.exp(min(_LIMIT, max(-_LIMIT, sum(math.log(ratio) for ratio in ratios))))
        return np.array([total if bounds["low"] <= total <= bounds["high"] else 0.0] * len(ratios))
    return np.array([ratio if bounds["low"] <= ratio <= bounds["high"] else 0.0 for ratio in ratios])


def naive_clipped(algorithm: AlgorithmConfig, log_ratios: Array, advantages: Array) -> Array | None:
    """Return 1 for each token that a built-in loss clips and 0 for others; None for losses without clipping.

    NaN marks tokens so close to a bound that rounding decides.
    """
    if not is_clipping_loss(algorithm):
        return None
    loss = location_of(algorithm.policy_loss.target)
    options = {"dual_clip": None} | algorithm.policy_loss.options.model_dump()
    if loss == _GSPO:
        log_ratios = np.full(len(log_ratios), log_ratios.mean() if len(log_ratios) else 0.0)
    low, high, dual = 1 - options["clip_low"], 1 + options["clip_high"], options["dual_clip"]
    flags = []
    for log_ratio, advantage in zip(log_ratios, advantages, strict=True):
        ratio = math.exp(min(_LIMIT, max(-_LIMIT, log_ratio)))
        bounds = [low, high, *([dual] if dual is not None else [])]
        if any(abs(ratio - bound) <= _EDGE * max(1.0, bound) for bound in bounds):
            flags.append(math.nan)
        elif loss == _CISPO:
            flags.append(float(not low <= ratio <= high))
        else:
            above, below = advantage > 0 and ratio > high, advantage < 0 and ratio < low
            flags.append(float(above or below or (dual is not None and advantage < 0 and ratio > dual)))
    return np.array(flags)


def naive_mini_batches(
    episodes: Sequence[int], epochs: int, parts: int, seed: int, step: int, model: Literal["policy", "critic"]
) -> list[list[int]]:
    """Return the places of the trajectories of each optimizer step of a training step.

    Each epoch draws an order of the episodes, and cuts it into parts whose sizes differ by at most one, the larger ones
    first. `episodes` has the number of trajectories of each.
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
    """Return the learned groups, given in order, whose tokens a run records, by `run.token_groups` and its seed."""
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
