"""Advantage estimators: from the rewards of a step to a number on each sampled token. No torch.

Axis suffixes: `_N` the trajectories of a step, `_M` all their tokens laid end to end (`lengths_N` says how many belong
to each). Only tokens in `mask_M`, the sampled ones, take part: the kernels see the sampled tokens of a trajectory as if
they were neighbors, and give 0 to prompts and observations, whatever arrays hold there.

Every estimator raises `ValueError` for shapes that do not fit and for a reward that is not finite.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Literal, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

import torl._core as _core
from torl.algorithms.turns import Turns
from torl.options import PositiveFraction
from torl.types import BoolArray, Float32Array, Int32Array

Int64Array: TypeAlias = npt.NDArray[np.int64]
Float64Array: TypeAlias = npt.NDArray[np.float64]
Lambda = Annotated[float, Field(ge=0, le=1)]
TurnDiscount = Annotated[float, Field(ge=0, le=1)]
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class EstimatorInputs:
    """What a step was paid, and everything else that an estimator may look at."""

    rewards_N: Float64Array  # of each trajectory; paid at its last sampled token
    groups_N: Sequence[Hashable]  # equal for the trajectories that are compared with each other
    lengths_N: Int64Array  # tokens of each trajectory
    mask_M: BoolArray  # the sampled tokens
    token_rewards_M: Float32Array | None = None  # paid at single tokens: turn rewards, a penalty on each token
    values_M: Float32Array | None = None  # the critic's, before each token; only where the estimator requires one
    turns_M: Int32Array | None = None  # the number of the turn in its trajectory that sampled a token; -1 on all others

    @property
    def totals(self) -> Float64Array:
        """All that each trajectory was paid, shape (N,): its reward and those of its sampled tokens."""
        if self.token_rewards_M is None:
            return self.rewards_N
        return self.rewards_N + _core.row_sums(self.token_rewards_M, self.lengths_N, self.mask_M)

    def broadcast_to_tokens(self, values_N: npt.ArrayLike) -> Float32Array:
        """One value for each trajectory as the value of all its sampled tokens, shape (M,); 0 on all others."""
        return _core.broadcast_to_tokens(np.asarray(values_N, dtype=np.float64), self.lengths_N, self.mask_M)


@dataclass(frozen=True, slots=True)
class TokenAdvantages:
    """What an estimator gives, on every token; 0 on tokens that were not sampled."""

    advantages_M: Float32Array
    returns_M: Float32Array | None = None  # what the critic should have predicted, where the estimator requires one


class Estimator(Protocol):
    '''An advantage estimator: a function of `EstimatorInputs` and its own options that returns per-token advantages.

    A whole one, which asks only who was the best of a group:

        from collections.abc import Hashable

        import numpy as np

        from torl.algorithms.advantages import EstimatorInputs, TokenAdvantages, requires
        from torl.options import NonNegativeFloat

        @requires(min_group_size=2)
        def best_of_group(rewards: EstimatorInputs, margin: NonNegativeFloat = 0.0) -> TokenAdvantages:
            """1 for every trajectory within `margin` of the best of its group, -1 for the others."""
            best: dict[Hashable, float] = {}
            for group, total in zip(rewards.groups_N, rewards.totals, strict=True):
                best[group] = max(total, best.get(group, total))
            best_N = np.array([best[group] for group in rewards.groups_N])
            return TokenAdvantages(rewards.broadcast_to_tokens(np.where(rewards.totals >= best_N - margin, 1.0, -1.0)))

        [algorithm.estimator]
        name = "my_package.estimators:best_of_group"
        margin = 0.1
    '''

    def __call__(self, rewards: EstimatorInputs, /) -> TokenAdvantages:
        """The advantages, once the options are bound."""
        ...


def requires(*, critic: bool = False, min_group_size: int = 1) -> Callable[[Function], Function]:
    """What an estimator requires of a run: a critic beside the policy, and trajectories in each group."""

    def mark(function: Function) -> Function:
        vars(function).update(needs_critic=critic, min_group_size=min_group_size)
        return function

    return mark


# --- compared within a group: one advantage for all tokens of a trajectory ---------------------------------


def grpo(rewards: EstimatorInputs) -> TokenAdvantages:
    """(r - mean) / (std + 1e-6) of the group, r the whole reward (DeepSeekMath, section 4.1)."""
    return _spread_group_advantages("grpo", rewards)


def dr_grpo(rewards: EstimatorInputs) -> TokenAdvantages:
    """r - mean of the group, r the whole reward (Dr. GRPO, section 3.2)."""
    return _spread_group_advantages("dr_grpo", rewards)


@requires(min_group_size=2)
def rloo(rewards: EstimatorInputs) -> TokenAdvantages:
    """r - mean of the other members of the group, r the whole reward (RLOO, equation 8)."""
    return _spread_group_advantages("rloo", rewards)


def _spread_group_advantages(kernel: str, rewards: EstimatorInputs) -> TokenAdvantages:
    return TokenAdvantages(rewards.broadcast_to_tokens(group_advantages(kernel, rewards.totals, rewards.groups_N)))


# --- compared turn by turn: one advantage for all tokens of a turn -----------------------------------------


def gtpo(
    rewards: EstimatorInputs, *, discount: TurnDiscount = 1.0, baseline: Literal["group", "turn"] = "group"
) -> TokenAdvantages:
    """Returns from turn to turn, normalized within the group as `grpo` normalizes (GTPO, arXiv 2511.14846).

    A turn's return is what it and the turns behind it were paid; the reward at the end comes with the last turn.

    Args:
        rewards: of the step, with its turns.
        discount: What a reward is multiplied by for each turn that it lies ahead; 0 pays every turn for itself.
        baseline: What a return is compared with: those of all turns of its group, or of the turns with its number.

    Raises:
        ValueError: there are no turns.
    """
    if rewards.turns_M is None:
        raise ValueError("estimator 'gtpo' needs the turns of the trajectories")
    turns = Turns.from_arrays(rewards.turns_M, rewards.lengths_N, rewards.mask_M)
    returns_K = turns.returns(turns.rewards(rewards.rewards_N, rewards.token_rewards_M), discount)
    numbers_K = turns.turn_indices if baseline == "turn" else np.zeros_like(turns.turn_indices)
    groups_K = [
        (rewards.groups_N[row], number)
        for row, number in zip(turns.trajectory_indices.tolist(), numbers_K.tolist(), strict=True)
    ]
    return TokenAdvantages(turns.broadcast_to_tokens(group_advantages("grpo", returns_K, groups_K)))


# --- discounted from token to token ------------------------------------------------------------------------


def reinforce_plus_plus(rewards: EstimatorInputs, *, discount: PositiveFraction = 1.0) -> TokenAdvantages:
    """Returns, discounted by `discount` for each sampled token, whitened over the step (arXiv 2501.03262).

    Args:
        rewards: of the step.
        discount: What a reward is multiplied by for each sampled token that it lies ahead.
    """
    return _whitened_returns(rewards, rewards.rewards_N, discount)


def reinforce_plus_plus_baseline(rewards: EstimatorInputs, *, discount: PositiveFraction = 1.0) -> TokenAdvantages:
    """`reinforce_plus_plus` with the group's mean taken from each trajectory's reward first (arXiv 2501.03262).

    The mean is that of the rewards at the ends; what single tokens are paid stays as it is.

    Args:
        rewards: of the step.
        discount: What a reward is multiplied by for each sampled token that it lies ahead.
    """
    centered_N = group_advantages("dr_grpo", rewards.rewards_N, rewards.groups_N).astype(np.float64)
    return _whitened_returns(rewards, centered_N, discount)


@requires(critic=True)
def ppo(rewards: EstimatorInputs, *, discount: PositiveFraction = 1.0, gae_lambda: Lambda = 1.0) -> TokenAdvantages:
    """Generalized advantage estimation with a critic's values (arXiv 1506.02438, equation 16), and the returns.

    Args:
        rewards: of the step, with the critic's values.
        discount: What a reward is multiplied by for each sampled token that it lies ahead.
        gae_lambda: Between the critic's word alone (0) and the rewards' alone, less the critic's (1).

    Raises:
        ValueError: there are no values.
    """
    if rewards.values_M is None:
        raise ValueError("estimator 'ppo' needs the values of a critic")
    advantages_M, returns_M = _core.generalized_advantages(
        rewards.rewards_N,
        rewards.token_rewards_M,
        rewards.values_M,
        rewards.lengths_N,
        rewards.mask_M,
        discount,
        gae_lambda,
    )
    return TokenAdvantages(advantages_M, returns_M)


def _whitened_returns(rewards: EstimatorInputs, rewards_N: Float64Array, discount: float) -> TokenAdvantages:
    lengths_N, mask_M = rewards.lengths_N, rewards.mask_M
    if rewards.token_rewards_M is None and discount == 1:  # each token returns the whole reward
        return TokenAdvantages(rewards.broadcast_to_tokens(_core.whiten_rows(rewards_N, lengths_N, mask_M)))
    returns_M = _core.discounted_returns(rewards_N, rewards.token_rewards_M, lengths_N, mask_M, discount)
    return TokenAdvantages(_core.whiten(returns_M, lengths_N, mask_M))


ESTIMATORS: Mapping[str, Callable[..., TokenAdvantages]] = MappingProxyType(
    {
        "grpo": grpo,
        "dr_grpo": dr_grpo,
        "rloo": rloo,
        "reinforce_plus_plus": reinforce_plus_plus,
        "reinforce_plus_plus_baseline": reinforce_plus_plus_baseline,
        "ppo": ppo,
        "gtpo": gtpo,
    }
)
"""The estimators that a configuration knows by name."""


# --- groups ------------------------------------------------------------------------------------------------


def group_advantages(kernel: str, rewards_N: npt.ArrayLike, groups_N: Sequence[Hashable]) -> Float32Array:
    """The advantage of each trajectory, shape (N,), from its reward and the rewards of its group.

    - "grpo": (r - mean) / (std + 1e-6), unbiased std (DeepSeekMath, section 4.1; epsilon as in verl `core_algos.py`)
    - "dr_grpo": r - mean (Dr. GRPO, section 3.2)
    - "rloo": r - mean of the other members (RLOO, equation 8)

    `groups_N[i]` names the group of trajectory i; members need not be neighbors, groups need not be equally
    large. A group of one has nothing to be compared with and takes mean 0 and std 1. Sums are in float64 and do
    not depend on the order of the trajectories; equal rewards give exactly 0.

    Raises `ValueError` for an unknown kernel, lengths that differ, or a reward that is not finite.
    """
    numbers: dict[Hashable, int] = {}
    group_ids_N = np.fromiter((numbers.setdefault(group, len(numbers)) for group in groups_N), dtype=np.int64)
    return _core.group_advantages(kernel, np.asarray(rewards_N, dtype=np.float64), group_ids_N)
