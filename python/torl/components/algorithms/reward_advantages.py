"""Estimators that treat rewards in other ways than GRPO, and the normalization of a step's rewards. No torch.

MaxRL, and GDPO for rewards of several parts. Axis suffix `_N`: the trajectories of a step.
"""

from collections.abc import Mapping
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field

import torl._core as _core
from torl.base.options import PositiveFloat
from torl.components.algorithms.advantages import EstimatorInputs, Float64Array, TokenAdvantages
from torl.components.algorithms.group_advantages import group_advantages, indices_by_group
from torl.components.algorithms.requirements import requires


def maxrl(inputs: EstimatorInputs) -> TokenAdvantages:
    """(r - mean) / mean over the group, with r the total reward (MaxRL, arXiv 2602.02710).

    0 where the mean is 0, and in groups of one, which have nothing to be compared with.
    In expectation, this is the gradient of the log-probability of success, up to the order that the group size allows.
    Rewards must not be negative: set `reward.parts.answer.wrong = 0`.

    Raises:
        ValueError: A reward is negative.
    """
    totals_N = np.asarray(inputs.totals, np.float64)
    if len(totals_N) and totals_N.min() < 0:
        raise ValueError(
            f"estimator 'maxrl' divides by the mean reward and requires rewards of at least 0, got {totals_N.min():g}: "
            "set reward.parts.answer.wrong = 0"
        )
    centered_N = group_advantages("dr_grpo", totals_N, inputs.groups_N)  # exactly 0 for equal rewards
    advantages_N = np.zeros(len(totals_N))
    for indices in indices_by_group(inputs.groups_N):
        mean = totals_N[indices].mean()
        if len(indices) > 1 and mean > 0:
            advantages_N[indices] = centered_N[indices] / mean
    return TokenAdvantages(inputs.broadcast_to_tokens(advantages_N))


@requires(uniform_groups=True)
def gdpo(
    inputs: EstimatorInputs, weights: Annotated[Mapping[str, PositiveFloat], Field()] | None = None
) -> TokenAdvantages:
    """Parts of the reward normalized one by one over the group, added, and whitened (GDPO, arXiv 2601.05242).

    Each part is (r - mean) / (std + 1e-6) over the group, so that a part of small values counts as much as others.
    The sum is whitened over all sampled tokens of the step. A reward without parts is one part. With parts, turn
    rewards and a KL penalty on rewards do not count.

    Args:
        inputs: Inputs of the estimator.
        weights: Weight of each part, by name. Others have 1. The weights of the rubric do not matter: they cancel.
    """
    parts: Mapping[str, Float64Array] = inputs.parts or {"": np.asarray(inputs.totals, np.float64)}
    given = dict(weights or {})
    if unknown := sorted(given.keys() - parts.keys()):
        raise ValueError(f"estimator 'gdpo' has a weight of {unknown[0]!r}; the parts are {', '.join(sorted(parts))}")
    total_N = np.zeros(len(inputs.rewards_N))
    for name, part_N in parts.items():
        total_N += given.get(name, 1.0) * group_advantages("grpo", part_N, inputs.groups_N)
    return TokenAdvantages(inputs.broadcast_to_tokens(_core.whiten_rows(total_N, inputs.lengths_N, inputs.mask_M)))


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
