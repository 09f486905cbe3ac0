"""Advantages that compare the trajectories of one prompt with each other. Axis `_N`: the trajectories of a step."""

from collections.abc import Hashable, Sequence
from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from torl import _core
from torl.types import BoolArray, Float32Array

GroupEstimator: TypeAlias = Literal["grpo", "dr_grpo", "rloo"]
GROUP_ESTIMATORS: tuple[GroupEstimator, ...] = get_args(GroupEstimator)


def group_advantages(estimator: GroupEstimator, rewards_N: npt.ArrayLike, groups_N: Sequence[Hashable]) -> Float32Array:
    """The advantage of each trajectory, shape (N,), from its reward and the rewards of its group.

    - "grpo": (r - mean) / (std + 1e-6), unbiased std (DeepSeekMath, section 4.1; epsilon as in verl `core_algos.py`)
    - "dr_grpo": r - mean (Dr. GRPO, section 3.2)
    - "rloo": r - mean of the other members (RLOO, equation 8)

    `groups_N[i]` names the group of trajectory i; members need not be neighbours, groups need not be equally
    large. A group of one has nothing to be compared with and takes mean 0 and std 1. Sums are in float64 and do
    not depend on the order of the trajectories; equal rewards give exactly 0.

    Raises `ValueError` for an unknown estimator, lengths that differ, or a reward that is not finite.
    """
    numbers: dict[Hashable, int] = {}
    group_ids_N = np.fromiter((numbers.setdefault(group, len(numbers)) for group in groups_N), dtype=np.int64)
    return _core.group_advantages(estimator, np.asarray(rewards_N, dtype=np.float64), group_ids_N)


def carries_signal(rewards_N: npt.ArrayLike, groups_N: Sequence[Hashable]) -> BoolArray:
    """For each trajectory, shape (N,), whether the rewards of its group differ. A group of one counts as True.

    Where they are all equal every advantage is 0: nothing is learned, and DAPO's dynamic sampling draws again.
    """
    members: dict[Hashable, list[float]] = {}
    for group, reward in zip(groups_N, np.asarray(rewards_N, dtype=np.float64).tolist(), strict=True):
        members.setdefault(group, []).append(reward)
    differs = {group: len(rewards) == 1 or min(rewards) != max(rewards) for group, rewards in members.items()}
    return np.fromiter((differs[group] for group in groups_N), dtype=np.bool_)


def spread_over_tokens(advantage: float, loss_mask_T: BoolArray) -> Float32Array:
    """One trajectory's advantage on each of its sampled tokens, 0 on all others; shape (T,)."""
    return np.where(loss_mask_T, np.float32(advantage), np.float32(0.0))
