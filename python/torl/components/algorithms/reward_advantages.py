"""Advantages from rewards alone: GRPO, Dr. GRPO, RLOO, MaxRL, GTPO turn by turn, and GDPO for several parts. No torch.
Axis suffix `_N`: the trajectories of a step.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

import torl._core as _core
from torl.base.options import PositiveFloat
from torl.base.types import Float32Array
from torl.components.algorithms.advantages import EstimatorInputs, Float64Array, TokenAdvantages
from torl.components.algorithms.requirements import requires
from torl.components.algorithms.turns import Turns


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


TurnDiscount = Annotated[float, Field(ge=0, le=1)]


def group_advantages(kernel: str, rewards_N: npt.ArrayLike, groups_N: Sequence[Hashable]) -> Float32Array:
    """Compute the advantage of each trajectory relative to its group, shape (N,).

    - "grpo": (r - mean) / (std + 1e-6), unbiased std (DeepSeekMath, section 4.1; epsilon as in verl `core_algos.py`)
    - "dr_grpo": r - mean (Dr. GRPO, section 3.2)
    - "rloo": r - mean of the other members (RLOO, equation 8)

    A group with a single member has mean 0 and std 1. Sums are in float64 and do not depend on the order of the
    trajectories; equal rewards give exactly 0.

    Args:
        kernel: Name of the formula.
        rewards_N: Reward of each trajectory.
        groups_N: Group of each trajectory, in any order and of any size.

    Raises:
        ValueError: The kernel is unknown, the lengths differ, a reward is not finite, or rewards are too far apart.
    """
    group_indices: dict[Hashable, int] = {}
    group_ids_N = np.fromiter(
        (group_indices.setdefault(group, len(group_indices)) for group in groups_N), dtype=np.int64
    )
    return _core.group_advantages(kernel, np.asarray(rewards_N, dtype=np.float64), group_ids_N)


def indices_by_group(groups_N: Sequence[Hashable]) -> list[list[int]]:
    """Return the indices of the trajectories of each group, in the order of the groups' first trajectories."""
    found: dict[Hashable, list[int]] = {}
    for index, group in enumerate(groups_N):
        found.setdefault(group, []).append(index)
    return list(found.values())


def grpo(inputs: EstimatorInputs) -> TokenAdvantages:
    """(r - mean) / (std + 1e-6) over the group, with r the total reward (GRPO; DeepSeekMath, section 4.1)."""
    return _broadcast_group_advantages("grpo", inputs)


@requires(aggregations=["fixed_length"])
def dr_grpo(inputs: EstimatorInputs) -> TokenAdvantages:
    """r - mean over the group, with r the total reward (Dr. GRPO, section 3.2)."""
    return _broadcast_group_advantages("dr_grpo", inputs)


@requires(min_group_size=2)
def rloo(inputs: EstimatorInputs) -> TokenAdvantages:
    """r - mean over the other members of the group, with r the total reward (RLOO, equation 8)."""
    return _broadcast_group_advantages("rloo", inputs)


def _broadcast_group_advantages(kernel: str, inputs: EstimatorInputs) -> TokenAdvantages:
    return TokenAdvantages(inputs.broadcast_to_tokens(group_advantages(kernel, inputs.totals, inputs.groups_N)))


@requires(uniform_groups=True)
def gtpo(
    inputs: EstimatorInputs, *, discount: TurnDiscount = 1.0, baseline: Literal["group", "turn"] = "group"
) -> TokenAdvantages:
    """Turn-level returns, normalized over the group as in `grpo` (GTPO, arXiv 2511.14846).

    The return of turn k is the sum over j >= k of discount^(j - k) * r_j, with r_j the reward of turn j. The reward of
    the trajectory belongs to its last turn.

    Args:
        inputs: Inputs with turns.
        discount: Discount factor per turn. 0 rewards each turn separately.
        baseline: Returns over which mean and std are computed: "group" for all turns of the group, "turn" for the turns
            of the group with the same index.

    Raises:
        ValueError: The inputs have no turns.
    """
    if inputs.turns_M is None:
        raise ValueError("estimator 'gtpo' requires the turns of the trajectories")
    turns = Turns.from_arrays(inputs.turns_M, inputs.lengths_N, inputs.mask_M)
    returns_K = turns.returns(turns.rewards(inputs.final_rewards, inputs.token_rewards_M), discount)
    baselines_K = turns.turn_indices if baseline == "turn" else np.zeros_like(turns.turn_indices)
    groups_K = [
        (inputs.groups_N[trajectory], index)
        for trajectory, index in zip(turns.trajectory_indices.tolist(), baselines_K.tolist(), strict=True)
    ]
    return TokenAdvantages(turns.broadcast_to_tokens(group_advantages("grpo", returns_K, groups_K)))
