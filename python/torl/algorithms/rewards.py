"""What is done to the rewards of a step before they are compared. Axis `_N`: the trajectories of a step. No torch."""

import numpy as np
import numpy.typing as npt

_EPSILON = 1e-6


def overlong_punishment(lengths_N: npt.ArrayLike, limit: int, buffer: int) -> npt.NDArray[np.float64]:
    """DAPO's soft punishment of long responses (equation 13), shape (N,), between -1 and 0.

    None up to `limit - buffer` tokens, then linear to -1 at the limit, which no response exceeds.

    Args:
        lengths_N: tokens of each response, sampled and observed.
        limit: most tokens a response may have.
        buffer: in how many tokens before the limit the punishment grows; 0 punishes nobody.
    """
    if buffer == 0:
        return np.zeros_like(np.asarray(lengths_N, dtype=np.float64))
    beyond_N = np.asarray(lengths_N, dtype=np.float64) - (limit - buffer)
    return -np.clip(beyond_N / buffer, 0, 1)


def normalize_rewards(rewards_N: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """(r - mean) / (std + 1e-6) over all trajectories of the step, with the unbiased deviation; one alone gets 0."""
    rewards_N = np.asarray(rewards_N, dtype=np.float64)
    if len(rewards_N) < 2:
        return np.zeros_like(rewards_N)
    normalized: npt.NDArray[np.float64] = (rewards_N - rewards_N.mean()) / (rewards_N.std(ddof=1) + _EPSILON)
    return normalized
