"""Transformations of a step's rewards before advantage estimation. No torch.

Axis suffixes: `_N` the trajectories of a step, `_M` all their tokens, concatenated.
"""

import numpy as np
import numpy.typing as npt

from torl.algorithms.losses import LOG_RATIO_LIMIT, KlEstimator
from torl.types import Float32Array

_EPSILON = 1e-6


def normalize_rewards(rewards_N: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return (r - mean) / (std + 1e-6) over all trajectories of the step, with the unbiased standard deviation.

    A single trajectory gets 0.
    """
    rewards_N = np.asarray(rewards_N, dtype=np.float64)
    if len(rewards_N) < 2:
        return np.zeros_like(rewards_N)
    normalized: npt.NDArray[np.float64] = (rewards_N - rewards_N.mean()) / (rewards_N.std(ddof=1) + _EPSILON)
    return normalized


def kl_to_reference(old_logprobs_M: Float32Array, ref_logprobs_M: Float32Array, estimator: KlEstimator) -> Float32Array:
    """Estimate KL(policy || reference) at each token, shape (M,); see `losses.kl_to_reference`."""
    x = np.clip(ref_logprobs_M.astype(np.float64) - old_logprobs_M, -LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    estimates = {"k1": -x, "k2": x**2 / 2, "k3": np.expm1(x) - x}
    return estimates[estimator].astype(np.float32)
