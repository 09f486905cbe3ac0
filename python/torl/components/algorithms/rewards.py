"""Transformations of a step's rewards before advantage estimation. No torch.

Axis suffix `_N`: the trajectories of a step.
"""

import numpy as np
import numpy.typing as npt

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
