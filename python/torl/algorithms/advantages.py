"""Advantage estimators: from the rewards of a step to an advantage for each sampled token. No torch.

Axis suffixes: `_N` the trajectories of a step, `_M` all their tokens, concatenated (`lengths_N` has the number of
tokens of each trajectory). Only the sampled tokens in `mask_M` take part: estimators treat the sampled tokens of a
trajectory as consecutive, and return 0 for prompts and observations, regardless of the values of arrays there.

All estimators raise `ValueError` for inconsistent shapes and non-finite rewards.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import Field

import torl._core as _core
from torl.algorithms.requirements import Requirements, requires
from torl.algorithms.turns import Turns
from torl.errors import TorlError
from torl.guard import InvalidResultError, describe
from torl.options import PositiveFraction
from torl.types import BoolArray, Float32Array, Int32Array, ScoredTrajectory

Int64Array: TypeAlias = npt.NDArray[np.int64]
Float64Array: TypeAlias = npt.NDArray[np.float64]
Lambda = Annotated[float, Field(ge=0, le=1)]
TurnDiscount = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True, slots=True)
class EstimatorInputs:
    """The rewards of a step, and the other inputs of an advantage estimator.

    Axis `_N` are the trajectories of the step; axis `_M` are all their tokens (prompts, sampled tokens, observations),
    one trajectory after the other.

    Attributes:
        rewards_N: Reward of each trajectory, received at its last sampled token.
        groups_N: Group of each trajectory: equal for trajectories that are compared with each other.
        lengths_N: Number of tokens of each trajectory.
        mask_M: Loss mask: True for sampled tokens.
        token_rewards_M: Rewards of single tokens: turn rewards, or a KL penalty on each token.
        values_M: The critic's values before each token. None unless the estimator requires a critic.
        turns_M: Index of each sampled token's turn in its trajectory, from 0; -1 for other tokens.
        members_N: The trajectories with their grades, in the order of `rewards_N`, which may have been normalized.
        old_logprobs_M: Log-probabilities of the policy before the update. None unless `@requires(old_logprobs=True)`.
        ref_logprobs_M: Log-probabilities of the reference model. None unless `@requires(reference=True)`.
        entropies_M: Entropies of the policy before the update. None unless `@requires(entropies=True)`.
        collision_probs_M: Sums of the squared probabilities of all tokens, by the policy before the update. None unless
            `@requires(collision_probs=True)`.
    """

    rewards_N: Float64Array
    groups_N: Sequence[Hashable]
    lengths_N: Int64Array
    mask_M: BoolArray
    token_rewards_M: Float32Array | None = None
    values_M: Float32Array | None = None
    turns_M: Int32Array | None = None
    members_N: Sequence[ScoredTrajectory] = ()
    old_logprobs_M: Float32Array | None = None
    ref_logprobs_M: Float32Array | None = None
    entropies_M: Float32Array | None = None
    collision_probs_M: Float32Array | None = None

    @property
    def parts(self) -> Mapping[str, Float64Array]:
        """Parts of the rewards by name, each of shape (N,); 0 for a trajectory without the part."""
        parts = [member.grade.parts for member in self.members_N]
        names = sorted({name for each in parts for name in each})
        return {name: np.array([each.get(name, 0.0) for each in parts], np.float64) for name in names}

    @property
    def correct(self) -> BoolArray:
        """Whether each answer is rewarded as correct (`Grade.credited`), shape (N,)."""
        return np.array([member.grade.credited for member in self.members_N], np.bool_)

    @property
    def calls(self) -> Int64Array:
        """Number of tool calls of each episode, shape (N,)."""
        episodes = [member.trajectory.episode_trajectories for member in self.members_N]
        return np.array([sum(len(each.tool_calls) for each in episode) for episode in episodes], np.int64)

    @property
    def sampled_tokens(self) -> Int64Array:
        """Number of sampled tokens of each episode, masked or not, shape (N,)."""
        episodes = [member.trajectory.episode_trajectories for member in self.members_N]
        return np.array([sum(int(each.loss_mask_T.sum()) for each in episode) for episode in episodes], np.int64)

    @property
    def first_code(self) -> Int64Array:
        """Number of sampled tokens before the first code of each trajectory, shape (N,); -1 without code.

        Code begins with the first code block, or else with the first turn that calls a tool.
        """
        places = [(member.trajectory, member.trajectory.first_code) for member in self.members_N]
        before = [-1 if place is None else int(each.loss_mask_T[:place].sum()) for each, place in places]
        return np.array(before, np.int64)

    @property
    def totals(self) -> Float64Array:
        """Total reward of each trajectory, shape (N,): its reward plus the rewards of its sampled tokens."""
        if self.token_rewards_M is None:
            return self.rewards_N
        return self.rewards_N + _core.row_sums(self.token_rewards_M, self.lengths_N, self.mask_M)

    def broadcast_to_tokens(self, values_N: npt.ArrayLike) -> Float32Array:
        """Assign one value of each trajectory to all its sampled tokens, shape (M,); 0 for other tokens."""
        return _core.broadcast_to_tokens(np.asarray(values_N, dtype=np.float64), self.lengths_N, self.mask_M)


@dataclass(frozen=True, slots=True)
class TokenAdvantages:
    """The result of an advantage estimator.

    Attributes:
        advantages_M: Advantage of each token; 0 for tokens that were not sampled.
        returns_M: Value targets of the critic. None unless the estimator requires a critic.
    """

    advantages_M: Float32Array
    returns_M: Float32Array | None = None


def check_advantages(estimated: object, rewards: EstimatorInputs) -> None:
    """Check the result of an estimator.

    Raises:
        InvalidResultError: `estimated` is not a `TokenAdvantages` with one finite float32 for each token.
    """
    if not isinstance(estimated, TokenAdvantages):
        raise InvalidResultError(f"expected TokenAdvantages, got {describe(estimated)}")
    for name, array in (("advantages_M", estimated.advantages_M), ("returns_M", estimated.returns_M)):
        if name == "returns_M" and array is None:
            continue
        if not isinstance(array, np.ndarray) or array.dtype != np.float32:
            found = f"an array of {array.dtype}" if isinstance(array, np.ndarray) else describe(array)
            raise InvalidResultError(f"expected {name} as an array of float32, got {found}")
        if array.shape != rewards.mask_M.shape:
            raise InvalidResultError(f"expected {name} of shape {rewards.mask_M.shape}, got {array.shape}")
        if not np.isfinite(array).all():
            raise InvalidResultError(f"{name} must be finite, got {np.count_nonzero(~np.isfinite(array))} other values")


class _NotInExampleError(TorlError):
    """The example of `try_estimator` has no graded trajectories."""


class _NoMembers(Sequence[ScoredTrajectory]):
    def __len__(self) -> int:
        raise _NotInExampleError

    def __getitem__(self, index: Any) -> Any:
        raise _NotInExampleError


def try_estimator(estimator: "Estimator", requirements: Requirements, group_size: int) -> None:
    """Call a custom estimator with two groups of different rewards, before a run starts.

    A trajectory has a prompt of one token, and two turns of two tokens with an observed token between them. An
    estimator that reads grades or texts is not checked any further: the example lacks both.

    Args:
        estimator: Guarded function with its options bound.
        requirements: Its requirements.
        group_size: Number of trajectories of a group.

    Raises:
        ComponentError: The estimator raised an exception or returned an invalid value.
    """
    count = 2 * group_size
    turns_M = np.tile(np.array([-1, 0, 0, -1, 1, 1], np.int32), count)
    zeros_M = np.zeros(len(turns_M), np.float32)
    inputs = EstimatorInputs(
        rewards_N=np.linspace(-1.0, 1.0, count),
        groups_N=["0/first"] * group_size + ["0/second"] * group_size,
        lengths_N=np.full(count, 6, np.int64),
        mask_M=turns_M >= 0,
        values_M=zeros_M if requirements.critic else None,
        turns_M=turns_M,
        members_N=_NoMembers(),
        old_logprobs_M=zeros_M if requirements.old_logprobs else None,
        ref_logprobs_M=zeros_M if requirements.reference else None,
        entropies_M=zeros_M if requirements.entropies else None,
        collision_probs_M=zeros_M if requirements.collision_probs else None,
    )
    with suppress(_NotInExampleError):
        estimator(inputs)


class Estimator(Protocol):
    '''An advantage estimator: a function of `EstimatorInputs` and its own options that returns `TokenAdvantages`.

    Example: an estimator that rewards only the best trajectories of a group.

        from collections.abc import Hashable

        import numpy as np

        from torl import EstimatorInputs, NonNegativeFloat, TokenAdvantages, requires

        @requires(min_group_size=2)
        def best_of_group(inputs: EstimatorInputs, margin: NonNegativeFloat = 0.0) -> TokenAdvantages:
            """1 for each trajectory within `margin` of the best of its group, -1 for the others."""
            best: dict[Hashable, float] = {}
            for group, total in zip(inputs.groups_N, inputs.totals, strict=True):
                best[group] = max(total, best.get(group, total))
            best_N = np.array([best[group] for group in inputs.groups_N])
            return TokenAdvantages(inputs.broadcast_to_tokens(np.where(inputs.totals >= best_N - margin, 1.0, -1.0)))

        [algorithm.estimator]
        name = "my_package.estimators:best_of_group"
        margin = 0.1
    '''

    def __call__(self, inputs: EstimatorInputs, /) -> TokenAdvantages:
        """Compute the advantages, with the options already bound."""
        ...


# --- group-relative estimators: one advantage for all tokens of a trajectory -------------------------------


def grpo(inputs: EstimatorInputs) -> TokenAdvantages:
    """(r - mean) / (std + 1e-6) over the group, with r the total reward (GRPO; DeepSeekMath, section 4.1)."""
    return _broadcast_group_advantages("grpo", inputs)


@requires(aggregation="fixed_length")
def dr_grpo(inputs: EstimatorInputs) -> TokenAdvantages:
    """r - mean over the group, with r the total reward (Dr. GRPO, section 3.2)."""
    return _broadcast_group_advantages("dr_grpo", inputs)


@requires(min_group_size=2)
def rloo(inputs: EstimatorInputs) -> TokenAdvantages:
    """r - mean over the other members of the group, with r the total reward (RLOO, equation 8)."""
    return _broadcast_group_advantages("rloo", inputs)


def _broadcast_group_advantages(kernel: str, inputs: EstimatorInputs) -> TokenAdvantages:
    return TokenAdvantages(inputs.broadcast_to_tokens(group_advantages(kernel, inputs.totals, inputs.groups_N)))


# --- turn-level estimator: one advantage for all tokens of a turn ------------------------------------------


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
    returns_K = turns.returns(turns.rewards(inputs.rewards_N, inputs.token_rewards_M), discount)
    baselines_K = turns.turn_indices if baseline == "turn" else np.zeros_like(turns.turn_indices)
    groups_K = [
        (inputs.groups_N[trajectory], index)
        for trajectory, index in zip(turns.trajectory_indices.tolist(), baselines_K.tolist(), strict=True)
    ]
    return TokenAdvantages(turns.broadcast_to_tokens(group_advantages("grpo", returns_K, groups_K)))


# --- token-level estimators: discounted per token ----------------------------------------------------------


def reinforce_plus_plus(inputs: EstimatorInputs, *, discount: PositiveFraction = 1.0) -> TokenAdvantages:
    """Token-level returns, whitened over all sampled tokens of the step (REINFORCE++, arXiv 2501.03262).

    The return of token t is the sum over s >= t of discount^(s - t) * r_s. Whitening is (x - mean) / sqrt(var + 1e-8)
    with the unbiased variance.

    Args:
        inputs: Inputs of the estimator.
        discount: Discount factor per sampled token.
    """
    return _whitened_returns(inputs, inputs.rewards_N, discount)


def reinforce_plus_plus_baseline(inputs: EstimatorInputs, *, discount: PositiveFraction = 1.0) -> TokenAdvantages:
    """`reinforce_plus_plus` with the group mean subtracted from each trajectory's reward (arXiv 2501.03262).

    Rewards of single tokens are neither part of the mean nor changed.

    Args:
        inputs: Inputs of the estimator.
        discount: Discount factor per sampled token.
    """
    centered_N = group_advantages("dr_grpo", inputs.rewards_N, inputs.groups_N).astype(np.float64)
    return _whitened_returns(inputs, centered_N, discount)


@requires(critic=True)
def ppo(inputs: EstimatorInputs, *, discount: PositiveFraction = 1.0, gae_lambda: Lambda = 1.0) -> TokenAdvantages:
    """Generalized advantage estimation with a critic (GAE, arXiv 1506.02438, equation 16), for PPO.

    A_t = sum over l >= 0 of (discount * gae_lambda)^l * delta_(t+l), with delta_t = r_t + discount * V_(t+1) - V_t. The
    value targets are A_t + V_t.

    Args:
        inputs: Inputs with the critic's values.
        discount: Discount factor per sampled token.
        gae_lambda: GAE lambda: 0 gives one-step temporal-difference errors, 1 the returns minus the values.

    Raises:
        ValueError: The inputs have no values.
    """
    if inputs.values_M is None:
        raise ValueError("estimator 'ppo' requires the values of a critic")
    advantages_M, returns_M = _core.generalized_advantages(
        inputs.rewards_N,
        inputs.token_rewards_M,
        inputs.values_M,
        inputs.lengths_N,
        inputs.mask_M,
        discount,
        gae_lambda,
    )
    return TokenAdvantages(advantages_M, returns_M)


def _whitened_returns(inputs: EstimatorInputs, rewards_N: Float64Array, discount: float) -> TokenAdvantages:
    lengths_N, mask_M = inputs.lengths_N, inputs.mask_M
    if inputs.token_rewards_M is None and discount == 1:  # all tokens of a trajectory have the same return
        return TokenAdvantages(inputs.broadcast_to_tokens(_core.whiten_rows(rewards_N, lengths_N, mask_M)))
    returns_M = _core.discounted_returns(rewards_N, inputs.token_rewards_M, lengths_N, mask_M, discount)
    return TokenAdvantages(_core.whiten(returns_M, lengths_N, mask_M))


ESTIMATORS: Mapping[str, Callable[..., TokenAdvantages] | str] = MappingProxyType(
    {
        "grpo": grpo,
        "dr_grpo": dr_grpo,
        "rloo": rloo,
        "reinforce_plus_plus": reinforce_plus_plus,
        "reinforce_plus_plus_baseline": reinforce_plus_plus_baseline,
        "ppo": ppo,
        "gtpo": gtpo,
        "optimal_token_baseline": "torl.algorithms.token_baseline:optimal_token_baseline",
        "maxrl": "torl.algorithms.reward_advantages:maxrl",
        "gdpo": "torl.algorithms.reward_advantages:gdpo",
        "aspo": "torl.algorithms.tool_advantages:aspo",
        "adatir": "torl.algorithms.tool_advantages:adatir",
        "gtpo_similar_code": "torl.algorithms.tool_advantages:gtpo_similar_code",
        "distillation": "torl.algorithms.distillation:distillation",
    }
)
"""Built-in estimators by their names in configurations."""


# --- groups ------------------------------------------------------------------------------------------------


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
        ValueError: The kernel is unknown, the lengths differ, or a reward is not finite.
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
