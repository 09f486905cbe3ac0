"""Ragged batches of trajectories with observations, for hypothesis; and the same batches padded, as peers want them."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from torl.components.algorithms.advantages import EstimatorInputs

Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class RaggedBatch:
    """Trajectories of a step: N rewards and groups, and the tokens of all of them laid end to end."""

    rewards: list[float]
    groups: list[int]
    masks: list[list[bool]]  # of each trajectory; True on sampled tokens
    token_rewards: Array
    values: Array
    turns: list[int] | None = None  # that each token belongs to, where they are not the runs of sampled tokens

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        return np.array([len(mask) for mask in self.masks], dtype=np.int64)

    @property
    def mask(self) -> npt.NDArray[np.bool_]:
        return np.array([sampled for mask in self.masks for sampled in mask], dtype=np.bool_)

    @property
    def turn_numbers(self) -> npt.NDArray[np.int32]:
        """The number of the run of sampled tokens that each token belongs to; -1 between them."""
        if self.turns is not None:
            return np.array(self.turns, np.int32)
        numbers: list[int] = []
        for mask in self.masks:
            number = -1
            for place, sampled in enumerate(mask):
                number += sampled and not (place and mask[place - 1])
                numbers.append(number if sampled else -1)
        return np.array(numbers, np.int32)

    @property
    def paid(self) -> EstimatorInputs:
        """As an estimator gets it: with token rewards and values."""
        return EstimatorInputs(
            np.array(self.rewards, np.float64),
            self.groups,
            self.lengths,
            self.mask,
            token_rewards_M=self.token_rewards,
            values_M=self.values,
            turns_M=self.turn_numbers,
        )

    def rows(self, flat: npt.NDArray[np.generic]) -> list[list[float]]:
        """The part of each trajectory."""
        stops = np.cumsum(self.lengths)
        return [flat[stop - length : stop].tolist() for stop, length in zip(stops, self.lengths, strict=True)]

    def padded(self, flat: npt.NDArray[np.generic], fill: float = 0.0) -> npt.NDArray[np.float64]:
        """One row for each trajectory, filled at the end."""
        result = np.full((len(self.masks), int(self.lengths.max())), fill, dtype=np.float64)
        for index, row in enumerate(self.rows(flat)):
            result[index, : len(row)] = row
        return result


def masks(min_sampled: int = 0) -> st.SearchStrategy[list[bool]]:
    """Runs of sampled and observed tokens; a response begins with sampled ones."""

    def join(runs: list[int]) -> list[bool]:
        return [index % 2 == 0 for index, length in enumerate(runs) for _ in range(length)]

    return st.lists(st.integers(1, 6), min_size=1 if min_sampled else 0, max_size=5).map(join)


def ragged_batches(min_sampled: int = 0, min_rows: int = 0) -> st.SearchStrategy[RaggedBatch]:
    """Up to twelve trajectories of up to three groups. Tokens that were not sampled have garbage."""
    reward = st.one_of(st.sampled_from([-1.0, 0.0, 1.0]), st.floats(-3, 3, width=32, allow_subnormal=False))
    row = st.tuples(reward, st.integers(0, 2), masks(min_sampled))

    @st.composite
    def batch(draw: st.DrawFn) -> RaggedBatch:
        rows = draw(st.lists(row, min_size=min_rows, max_size=12))
        tokens = sum(len(mask) for _, _, mask in rows)
        generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        return RaggedBatch(
            rewards=[reward for reward, _, _ in rows],
            groups=[group for _, group, _ in rows],
            masks=[mask for _, _, mask in rows],
            token_rewards=generator.normal(0, 0.1, tokens).astype(np.float32),
            values=generator.normal(0, 1, tokens).astype(np.float32),
        )

    return batch()
