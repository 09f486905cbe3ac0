"""Training samples as packed rows: samples laid end to end, nothing padded, the same number of rows for each rank.

Axis suffixes: `_N` the tokens of a row, `_K` the sampled tokens of a row, the only ones with a loss.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from torl import _core
from torl.types import Float32Array, Int32Array, TrainingSample

Int64Array = npt.NDArray[np.int64]

# A rank without samples still takes part in every forward and backward: ZeRO's collectives need all of them.
_EMPTY_ROW_TOKENS = 2


@dataclass(frozen=True, slots=True)
class Row:
    """Samples laid end to end, the unit of one forward and backward.

    `position_ids_N` starts at 0 in each sample, which is how attention keeps them apart. The token at
    `predictor_K[k]` predicts `target_K[k]`, so predictors are one to the left of their targets.
    """

    token_ids_N: Int32Array
    position_ids_N: Int32Array
    sample_lengths: tuple[int, ...]  # of the samples in the row, in order; sum N
    samples: tuple[int, ...]  # their indices in the batch; empty for a row that only keeps a rank company
    predictor_K: Int64Array
    target_K: Int64Array
    sample_K: Int64Array  # index in the batch of the sample that each sampled token belongs to
    offset_K: Int64Array  # index of the target in its sample
    advantage_K: Float32Array
    rollout_logprob_K: Float32Array
    old_logprob_K: Float32Array | None = None  # None: the update starts from the weights that are being trained

    def __len__(self) -> int:
        return len(self.token_ids_N)


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of every rank and the numbers of the whole batch that a loss divides by."""

    rows: tuple[tuple[Row, ...], ...]  # [rank][row]
    sampled_tokens: int
    tokens: int
    samples: int

    def rows_of(self, rank: int) -> tuple[Row, ...]:
        """The rows that `rank` computes; as many as any other rank's."""
        return self.rows[rank]


def pack_batch(
    samples: Sequence[TrainingSample],
    *,
    row_tokens: int,
    ranks: int,
    old_logprobs: Sequence[Float32Array] | None = None,
) -> Batch:
    """Lay samples into rows of at most `row_tokens` tokens (the longest sample's length, if that is more).

    `old_logprobs[i]` runs over the tokens of sample i like its `rollout_logprobs`. Which rows and ranks there are
    never changes what is learned, only how it is computed.

    Raises:
        ValueError: no sampled token at all; a sample whose arrays differ in length, or whose first token is
            marked as sampled (nothing predicts it), or with an advantage or a logprob that is not finite.
    """
    for index, sample in enumerate(samples):
        _check(index, sample, None if old_logprobs is None else old_logprobs[index])
    sampled_tokens = sum(int(sample.loss_mask.sum()) for sample in samples)
    if sampled_tokens == 0:
        raise ValueError(f"a batch of {len(samples)} samples has no sampled token to learn from")
    lengths = [len(sample) for sample in samples]
    layout = _core.pack(lengths, max(row_tokens, max(lengths)), ranks)
    rows = tuple(tuple(_row(indices, samples, old_logprobs) for indices in rank_rows) for rank_rows in layout)
    return Batch(rows, sampled_tokens, sum(lengths), len(samples))


def scatter_to_samples(
    samples: Sequence[TrainingSample], rows: Sequence[Row], values: Sequence[Float32Array]
) -> list[Float32Array]:
    """Per-sample arrays from the `_K` values of rows: 0 where nothing was sampled."""
    result = [np.zeros(len(sample), dtype=np.float32) for sample in samples]
    for row, value_K in zip(rows, values, strict=True):
        for sample, offset, value in zip(row.sample_K, row.offset_K, value_K, strict=True):
            result[sample][offset] = value
    return result


def _check(index: int, sample: TrainingSample, old_logprobs: Float32Array | None) -> None:
    arrays = {"loss_mask": sample.loss_mask, "rollout_logprobs": sample.rollout_logprobs}
    arrays["advantages"] = sample.advantages
    if old_logprobs is not None:
        arrays["old_logprobs"] = old_logprobs
    for name, array in arrays.items():
        if len(array) != len(sample):
            raise ValueError(f"sample {index}: {name} has {len(array)} entries for {len(sample)} tokens")
        if name != "loss_mask" and not np.isfinite(array).all():
            raise ValueError(f"sample {index}: {name} holds a value that is not finite")
    if len(sample) and sample.loss_mask[0]:
        raise ValueError(f"sample {index}: the first token is marked as sampled, but nothing comes before it")


def _row(indices: Sequence[int], samples: Sequence[TrainingSample], old_logprobs: Sequence[Float32Array] | None) -> Row:
    if not indices:
        return _empty_row(with_old=old_logprobs is not None)
    members = [samples[index] for index in indices]
    lengths = [len(member) for member in members]
    starts = np.cumsum([0, *lengths[:-1]])
    offsets = [np.flatnonzero(member.loss_mask) for member in members]

    def sampled(arrays: Sequence[Float32Array]) -> Float32Array:
        return np.concatenate([array[offset] for array, offset in zip(arrays, offsets, strict=True)])

    token_ids_N = np.concatenate([member.token_ids for member in members])
    target_place_K = np.concatenate([start + offset for start, offset in zip(starts, offsets, strict=True)])
    return Row(
        token_ids_N=token_ids_N,
        position_ids_N=np.concatenate([np.arange(length, dtype=np.int32) for length in lengths]),
        sample_lengths=tuple(lengths),
        samples=tuple(indices),
        predictor_K=target_place_K - 1,
        target_K=token_ids_N[target_place_K].astype(np.int64),
        sample_K=np.repeat(np.asarray(indices, dtype=np.int64), [len(offset) for offset in offsets]),
        offset_K=np.concatenate(offsets),
        advantage_K=sampled([member.advantages for member in members]),
        rollout_logprob_K=sampled([member.rollout_logprobs for member in members]),
        old_logprob_K=None if old_logprobs is None else sampled([old_logprobs[index] for index in indices]),
    )


def _empty_row(*, with_old: bool) -> Row:
    nothing = np.zeros(0, dtype=np.int64)
    nothing_float = np.zeros(0, dtype=np.float32)
    return Row(
        token_ids_N=np.zeros(_EMPTY_ROW_TOKENS, dtype=np.int32),
        position_ids_N=np.arange(_EMPTY_ROW_TOKENS, dtype=np.int32),
        sample_lengths=(_EMPTY_ROW_TOKENS,),
        samples=(),
        predictor_K=nothing,
        target_K=nothing,
        sample_K=nothing,
        offset_K=nothing,
        advantage_K=nothing_float,
        rollout_logprob_K=nothing_float,
        old_logprob_K=nothing_float if with_old else None,
    )
