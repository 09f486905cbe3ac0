"""Advantage estimators: from the rewards of a step to an advantage for each sampled token. No torch.

Axis suffixes: `_N` the trajectories of a step, `_M` all their tokens, concatenated (`lengths_N` has the number of
tokens of each trajectory). Only the sampled tokens in `mask_M` take part: estimators treat the sampled tokens of a
trajectory as consecutive, and return 0 for prompts and observations, regardless of the values of arrays there.

All estimators raise `ValueError` for inconsistent shapes and non-finite rewards.
"""

from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

import torl._core as _core
from torl.base.errors import TorlError
from torl.base.guard import InvalidResultError, describe
from torl.base.types import BoolArray, Float32Array, Int32Array, ScoredTrajectory
from torl.components.algorithms.requirements import Requirements

Int64Array: TypeAlias = npt.NDArray[np.int64]
Float64Array: TypeAlias = npt.NDArray[np.float64]


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
        masked_rewards_N: Sums of the token rewards of masked trajectories, whose tokens have no loss. None for zeros.
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
    _: KW_ONLY
    token_rewards_M: Float32Array | None = None
    masked_rewards_N: Float64Array | None = None
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
    def final_rewards(self) -> Float64Array:
        """Reward at the end of each trajectory, shape (N,), with all token rewards of masked trajectories."""
        return self.rewards_N if self.masked_rewards_N is None else self.rewards_N + self.masked_rewards_N

    @property
    def totals(self) -> Float64Array:
        """Total reward of each trajectory, shape (N,): its reward plus the rewards of its tokens, masked or not."""
        if self.token_rewards_M is None:
            return self.final_rewards
        return self.final_rewards + _core.row_sums(self.token_rewards_M, self.lengths_N, self.mask_M)

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
        **dict[str, Any]({f"{name}_M": zeros_M for name in requirements.token_arrays}),
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
