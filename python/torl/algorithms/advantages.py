"""Advantage estimators: from the rewards of a step to a number on each sampled token. No torch.

Axis suffixes: `_N` the trajectories of a step, `_M` all their tokens laid end to end (`lengths_N` says how many belong
to each). Only tokens in `mask_M`, the sampled ones, take part: the kernels see the sampled tokens of a trajectory as if
they were neighbours, and give 0 to prompts and observations, whatever arrays hold there.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from torl import _core
from torl.types import BoolArray, Float32Array

Int64Array: TypeAlias = npt.NDArray[np.int64]

GroupEstimator: TypeAlias = Literal["grpo", "dr_grpo", "rloo"]
Estimator: TypeAlias = Literal[GroupEstimator, "reinforce_plus_plus", "reinforce_plus_plus_baseline", "ppo"]
KlEstimator: TypeAlias = Literal["k1", "k2", "k3"]
GROUP_ESTIMATORS: tuple[GroupEstimator, ...] = get_args(GroupEstimator)

# exp(20) is 5e8: far outside any trust region, and far from infinity even when multiplied and summed.
LOG_RATIO_LIMIT = 20.0


@dataclass(frozen=True, slots=True)
class TokenAdvantages:
    """What an estimator gives, on every token; 0 on tokens that were not sampled."""

    advantages_M: Float32Array
    returns_M: Float32Array | None = None  # what a critic should have predicted; of "ppo" only


def token_advantages(
    estimator: Estimator,
    rewards_N: npt.ArrayLike,
    groups_N: Sequence[Hashable],
    lengths_N: npt.ArrayLike,
    mask_M: BoolArray,
    *,
    token_rewards_M: Float32Array | None = None,
    values_M: Float32Array | None = None,
    discount: float = 1.0,
    gae_lambda: float = 1.0,
    normalize: bool = False,
) -> TokenAdvantages:
    """Advantages by the estimator's name.

    - "grpo", "dr_grpo", "rloo": `group_advantages`, the same on all tokens of a trajectory; `token_rewards_M` are
      added to the trajectory's reward first.
    - "reinforce_plus_plus": discounted returns, whitened over all sampled tokens of the step (arXiv 2501.03262).
    - "reinforce_plus_plus_baseline": the same with the group's mean taken from each reward first.
    - "ppo": generalised advantage estimation with the critic's values (arXiv 1506.02438).

    Args:
        rewards_N: one for each trajectory; it arrives at the trajectory's last sampled token.
        groups_N: the trajectories that are compared with each other.
        lengths_N: tokens of each trajectory.
        mask_M: the sampled tokens.
        token_rewards_M: further rewards at their own tokens: a penalty on the distance from a reference policy.
        values_M: the critic's values before each token ("ppo" only, and needed there).
        discount: of rewards, by sampled token (gamma).
        gae_lambda: GAE's lambda.
        normalize: whiten the advantages of any estimator (the two of REINFORCE++ always do).

    Raises:
        ValueError: shapes that do not fit, a reward that is not finite, values missing or not wanted.
    """
    rewards_N = np.asarray(rewards_N, dtype=np.float64)
    lengths_N = np.asarray(lengths_N, dtype=np.int64)
    if (values_M is not None) != (estimator == "ppo"):
        raise ValueError(f"estimator {estimator!r}: values are for 'ppo', which needs them")
    normalize = normalize or estimator in ("reinforce_plus_plus", "reinforce_plus_plus_baseline")
    if estimator == "ppo":
        assert values_M is not None
        advantages_M, returns_M = _core.generalized_advantages(
            rewards_N, token_rewards_M, values_M, lengths_N, mask_M, discount, gae_lambda
        )
        return TokenAdvantages(_core.whiten(advantages_M, lengths_N, mask_M) if normalize else advantages_M, returns_M)

    if estimator in ("grpo", "dr_grpo", "rloo"):
        if token_rewards_M is not None:
            rewards_N = rewards_N + _core.row_sums(token_rewards_M, lengths_N, mask_M)
        advantages_N = group_advantages(estimator, rewards_N, groups_N).astype(np.float64)
    else:
        if estimator == "reinforce_plus_plus_baseline":
            rewards_N = group_advantages("dr_grpo", rewards_N, groups_N).astype(np.float64)
        if token_rewards_M is not None or discount != 1:
            returns_M = _core.discounted_returns(rewards_N, token_rewards_M, lengths_N, mask_M, discount)
            return TokenAdvantages(_core.whiten(returns_M, lengths_N, mask_M))
        advantages_N = rewards_N  # undiscounted, each of its tokens returns the whole reward
    if normalize:
        advantages_N = _core.whiten_rows(advantages_N, lengths_N, mask_M)
    return TokenAdvantages(_core.spread(advantages_N, lengths_N, mask_M))


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


def kl_to_reference(old_logprobs_M: Float32Array, ref_logprobs_M: Float32Array, estimator: KlEstimator) -> Float32Array:
    """An estimate of KL(policy || reference) on each token, shape (M,); see `losses.kl_to_reference`."""
    x = np.clip(ref_logprobs_M.astype(np.float64) - old_logprobs_M, -LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    estimates = {"k1": -x, "k2": x**2 / 2, "k3": np.expm1(x) - x}
    return estimates[estimator].astype(np.float32)
