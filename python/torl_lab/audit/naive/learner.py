"""Naive formulas of the learner, for one sequence at a time: rates, divergences, importance weights and clipping."""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt

from torl.run.config import AlgorithmConfig, LearnerConfig
from torl_lab.audit.naive.components import location_of

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
    """Return the learning rate of an optimizer step: linear warmup, then constant, linear or cosine decay to 0.

    Args:
        index: Number of optimizer steps before.
        total: Number of optimizer steps of the run.
        config: Peak and schedule.
    """
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
