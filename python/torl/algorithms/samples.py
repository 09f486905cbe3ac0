"""From trajectories and their rewards to what the learner trains on."""

from collections.abc import Hashable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from torl.algorithms.advantages import Int64Array, kl_to_reference, token_advantages
from torl.config import AlgorithmConfig
from torl.types import BoolArray, Float32Array, TrainingSample, Trajectory


def training_samples(trajectories: Sequence[Trajectory]) -> list[TrainingSample]:
    """One sample for each trajectory, prompt and response, as the engine sampled it; no advantages yet."""
    return [_training_sample(trajectory) for trajectory in trajectories]


def with_advantages(
    samples: Sequence[TrainingSample],
    rewards_N: npt.ArrayLike,
    groups_N: Sequence[Hashable],
    algorithm: AlgorithmConfig,
) -> list[TrainingSample]:
    """The samples with their advantages, and with the critic's targets where there is one.

    Args:
        samples: with everything that the estimator asks for (`Learner.prepare`).
        rewards_N: one for each.
        groups_N: which are compared with each other.
        algorithm: estimator, discounts, and whether the rewards pay for the distance from a reference policy.

    Raises:
        ValueError: lengths that differ, a reward that is not finite, values or logprobs that are missing.
    """
    if not samples:
        return []
    lengths_N: Int64Array = np.array([len(sample) for sample in samples], dtype=np.int64)
    mask_M: BoolArray = np.concatenate([np.zeros(0, np.bool_), *(sample.loss_mask for sample in samples)])
    token_rewards_M = None
    if algorithm.penalizes_rewards:
        old_M = _flat([sample.old_logprobs for sample in samples])
        ref_M = _flat([sample.ref_logprobs for sample in samples])
        token_rewards_M = -algorithm.kl_coefficient * kl_to_reference(old_M, ref_M, algorithm.kl_estimator)
        token_rewards_M = token_rewards_M.astype(np.float32)
    found = token_advantages(
        algorithm.estimator,
        rewards_N,
        groups_N,
        lengths_N,
        mask_M,
        token_rewards_M=token_rewards_M,
        values_M=_flat([sample.values for sample in samples]) if algorithm.estimator == "ppo" else None,
        discount=algorithm.discount,
        gae_lambda=algorithm.gae_lambda,
        normalize=algorithm.normalize_advantages,
    )
    stops = np.cumsum(lengths_N)
    advantages = np.split(found.advantages_M, stops[:-1])
    returns = [None] * len(samples) if found.returns_M is None else np.split(found.returns_M, stops[:-1])
    return [
        replace(sample, advantages=advantage, returns=target)
        for sample, advantage, target in zip(samples, advantages, returns, strict=True)
    ]


def mean_advantage(sample: TrainingSample) -> float:
    """The mean over the sampled tokens: the advantage itself where all of them have the same one."""
    if sample.advantages is None or not sample.loss_mask.any():
        return 0.0
    return float(sample.advantages[sample.loss_mask].mean(dtype=np.float64))


def token_numbers(sample: TrainingSample, response_tokens: int, algorithm: AlgorithmConfig) -> dict[str, Float32Array]:
    """What the advantages of a response were made of token by token, and these; empty if of its reward alone.

    Args:
        sample: with its advantages.
        response_tokens: the last so many of its tokens.
        algorithm: what was asked for.
    """
    names: list[str] = []
    if algorithm.estimator == "ppo":
        names.append("values")
    if algorithm.penalizes_rewards:
        names += ["old_logprobs", "ref_logprobs"]
    arrays = {name: getattr(sample, name) for name in (*names, "advantages")} if names else {}
    return {name: array[len(sample) - response_tokens :] for name, array in arrays.items()}


def _training_sample(trajectory: Trajectory) -> TrainingSample:
    prompt = trajectory.prompt.token_ids
    return TrainingSample(
        token_ids=np.concatenate([np.asarray(prompt, np.int32), trajectory.token_ids_T]),
        loss_mask=np.concatenate([np.zeros(len(prompt), np.bool_), trajectory.loss_mask_T]),
        rollout_logprobs=np.concatenate([np.zeros(len(prompt), np.float32), trajectory.rollout_logprobs_T]),
    )


def _flat(arrays: Sequence[Float32Array | None]) -> Float32Array:
    """Laid end to end."""
    present = [array for array in arrays if array is not None]
    if len(present) != len(arrays):
        raise ValueError("samples lack what the estimator asks for: prepare them first")
    return np.concatenate([np.zeros(0, np.float32), *present])
