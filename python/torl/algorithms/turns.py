"""The turns of a step's trajectories: what each was paid, and what is still to come when it begins. No torch.

Axis suffixes: `_N` the trajectories of a step, `_K` all their turns, `_M` all their tokens, each laid end to end.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from torl.types import BoolArray, Float32Array, Int32Array


@dataclass(frozen=True, slots=True)
class Turns:
    """Which turns there are, and which tokens of each carry a loss."""

    counts_N: npt.NDArray[np.int64]  # turns of each trajectory, which has one at least, though no token may be in it
    mask_M: BoolArray  # the tokens that carry a loss
    turns_M: npt.NDArray[np.int64]  # the turn among all that a token belongs to; of no meaning outside of turns

    @classmethod
    def from_arrays(cls, numbers_M: Int32Array, lengths_N: npt.NDArray[np.int64], mask_M: BoolArray) -> Self:
        """Find the turns of a step.

        Args:
            numbers_M: of the turn of its trajectory that a token belongs to, from 0; -1 outside of turns.
            lengths_N: tokens of each trajectory.
            mask_M: the tokens that carry a loss: none of a trajectory that is silenced, whose turns count all the same.

        Raises:
            ValueError: the shapes do not fit.
        """
        if not len(numbers_M) == len(mask_M) == lengths_N.sum():
            raise ValueError(f"turns of {len(numbers_M)} tokens for {lengths_N.sum()}, with a mask of {len(mask_M)}")
        rows_M = np.repeat(np.arange(len(lengths_N)), lengths_N)
        counts_N = np.ones(len(lengths_N), np.int64)
        np.maximum.at(counts_N, rows_M, numbers_M.astype(np.int64) + 1)
        firsts_N = np.cumsum(counts_N) - counts_N
        return cls(counts_N, mask_M & (numbers_M >= 0), firsts_N[rows_M] + numbers_M)

    @property
    def trajectory_indices(self) -> npt.NDArray[np.int64]:
        """The trajectory that each turn belongs to, shape (K,)."""
        return np.repeat(np.arange(len(self.counts_N)), self.counts_N)

    @property
    def turn_indices(self) -> npt.NDArray[np.int64]:
        """The number of each turn in its trajectory, from 0, shape (K,)."""
        return (
            np.arange(len(self.trajectory_indices))
            - (np.cumsum(self.counts_N) - self.counts_N)[self.trajectory_indices]
        )

    def rewards(
        self, rewards_N: npt.NDArray[np.float64], token_rewards_M: Float32Array | None
    ) -> npt.NDArray[np.float64]:
        """What the tokens of each turn were paid, shape (K,), and the trajectory's reward in its last turn."""
        paid_K = np.zeros(len(self.trajectory_indices))
        if token_rewards_M is not None:
            np.add.at(paid_K, self.turns_M[self.mask_M], token_rewards_M[self.mask_M].astype(np.float64))
        paid_K[np.cumsum(self.counts_N) - 1] += rewards_N
        return paid_K

    def returns(self, paid_K: npt.NDArray[np.float64], discount: float) -> npt.NDArray[np.float64]:
        """What each turn and those behind it were paid, shape (K,); `discount` times so for each turn between."""
        returns_K = paid_K.copy()
        lasts_K = (self.counts_N - 1)[self.trajectory_indices]
        for number in range(int(self.counts_N.max(initial=0)) - 2, -1, -1):
            (places,) = np.nonzero((self.turn_indices == number) & (lasts_K > number))
            returns_K[places] += discount * returns_K[places + 1]
        return returns_K

    def broadcast_to_tokens(self, values_K: npt.NDArray[np.floating]) -> Float32Array:
        """One value for each turn as the value of all its tokens that carry a loss, shape (M,); 0 on all others."""
        values_M = np.zeros(len(self.mask_M), np.float32)
        values_M[self.mask_M] = values_K[self.turns_M[self.mask_M]]
        return values_M
