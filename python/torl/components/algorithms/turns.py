"""The turns of a step's trajectories: their rewards and returns. No torch.

Axis suffixes: `_N` the trajectories of a step, `_K` all their turns, `_M` all their tokens, each concatenated.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from torl.base.types import BoolArray, Float32Array, Int32Array


@dataclass(frozen=True, slots=True)
class Turns:
    """The turns of a step, and the tokens of each in the loss."""

    counts_N: npt.NDArray[np.int64]
    """Number of turns of each trajectory, at least 1, even if no token belongs to a turn."""
    mask_M: BoolArray
    """Loss mask."""
    turns_M: npt.NDArray[np.int64]
    """Index among all K turns of each token's turn. Meaningless for tokens outside of turns."""

    @classmethod
    def from_arrays(cls, indices_M: Int32Array, lengths_N: npt.NDArray[np.int64], mask_M: BoolArray) -> Self:
        """Create the turns of a step.

        Args:
            indices_M: Index of each token's turn in its trajectory, from 0; -1 outside of turns.
            lengths_N: Number of tokens of each trajectory.
            mask_M: Loss mask. The turns of a trajectory that is masked completely still count.

        Raises:
            ValueError: The shapes are inconsistent.
        """
        if not len(indices_M) == len(mask_M) == lengths_N.sum():
            raise ValueError(f"turns of {len(indices_M)} tokens for {lengths_N.sum()}, with a mask of {len(mask_M)}")
        trajectories_M = np.repeat(np.arange(len(lengths_N)), lengths_N)
        counts_N = np.ones(len(lengths_N), np.int64)
        np.maximum.at(counts_N, trajectories_M, indices_M.astype(np.int64) + 1)
        firsts_N = np.cumsum(counts_N) - counts_N
        return cls(counts_N, mask_M & (indices_M >= 0), firsts_N[trajectories_M] + indices_M)

    @property
    def trajectory_indices(self) -> npt.NDArray[np.int64]:
        """Index of each turn's trajectory, shape (K,)."""
        return np.repeat(np.arange(len(self.counts_N)), self.counts_N)

    @property
    def turn_indices(self) -> npt.NDArray[np.int64]:
        """Index of each turn in its trajectory, from 0, shape (K,)."""
        return (
            np.arange(len(self.trajectory_indices))
            - (np.cumsum(self.counts_N) - self.counts_N)[self.trajectory_indices]
        )

    def rewards(
        self, rewards_N: npt.NDArray[np.float64], token_rewards_M: Float32Array | None
    ) -> npt.NDArray[np.float64]:
        """Return the reward of each turn, shape (K,): the sum over its tokens, plus the trajectory's at its last turn.

        Args:
            rewards_N: Reward of each trajectory.
            token_rewards_M: Rewards of single tokens. None for zeros.
        """
        rewards_K = np.zeros(len(self.trajectory_indices))
        if token_rewards_M is not None:
            np.add.at(rewards_K, self.turns_M[self.mask_M], token_rewards_M[self.mask_M].astype(np.float64))
        rewards_K[np.cumsum(self.counts_N) - 1] += rewards_N
        return rewards_K

    def returns(self, rewards_K: npt.NDArray[np.float64], discount: float) -> npt.NDArray[np.float64]:
        """Return the discounted sum of the rewards of each turn and the later turns of its trajectory, shape (K,).

        Args:
            rewards_K: Reward of each turn.
            discount: Discount factor per turn.
        """
        returns_K = rewards_K.copy()
        lasts_K = (self.counts_N - 1)[self.trajectory_indices]
        for index in range(int(self.counts_N.max(initial=0)) - 2, -1, -1):
            (turns,) = np.nonzero((self.turn_indices == index) & (lasts_K > index))
            returns_K[turns] += discount * returns_K[turns + 1]
        return returns_K

    def broadcast_to_tokens(self, values_K: npt.NDArray[np.floating]) -> Float32Array:
        """Assign one value of each turn to all its tokens in the loss, shape (M,); 0 for other tokens."""
        values_M = np.zeros(len(self.mask_M), np.float32)
        values_M[self.mask_M] = values_K[self.turns_M[self.mask_M]]
        return values_M
