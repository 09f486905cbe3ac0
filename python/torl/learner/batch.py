"""Training samples as packed rows: samples laid end to end, nothing padded, the same number of rows for each rank.

Axis suffixes: `_N` the tokens of a row, `_K` the sampled tokens of a row, the only ones with a loss.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import torl._core as _core
from torl.algorithms.aggregation import Aggregation, by_token
from torl.learner.mini_batches import episodes_of
from torl.types import Float32Array, Int32Array, TrainingSample

Int64Array = npt.NDArray[np.int64]

# A rank without samples still takes part in every forward and backward: ZeRO's collectives need all of them.
_EMPTY_ROW_TOKENS = 2


@dataclass(frozen=True, slots=True)
class PackedRow:
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
    weight_K: Float32Array  # of the token's loss in the loss of the batch
    rollout_logprob_K: Float32Array
    # None where the samples have none.
    advantage_K: Float32Array | None = None
    old_logprob_K: Float32Array | None = None
    ref_logprob_K: Float32Array | None = None
    value_K: Float32Array | None = None
    return_K: Float32Array | None = None

    def __len__(self) -> int:
        return len(self.token_ids_N)


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of every rank, and how much is in them."""

    rows: tuple[tuple[PackedRow, ...], ...]  # [rank][row]; every rank has as many
    sampled_tokens: int
    tokens: int
    samples: int


def pack_batch(
    samples: Sequence[TrainingSample],
    *,
    max_row_tokens: int,
    ranks: int,
    aggregation: Aggregation = by_token,
    skip_zero_advantage: bool = False,
    ranks_per_row: int = 1,
) -> Batch:
    """Lay samples into rows of at most `max_row_tokens` tokens (the longest sample's length, if that is more).

    Which rows and ranks there are never changes what is learned, only how it is computed. An episode of several samples
    counts once in the aggregation. Samples without a sampled
    token are in no row. With `skip_zero_advantage` neither are those whose advantages are all zero, but they count
    in what the loss is divided by, so that leaving them out only saves time. So many neighbors as are `sharing` get the
    same rows, which may be so many times as long; they divide `ranks`.

    Raises:
        ValueError: nothing is left to lay into rows; an array that only some samples have, that differs from its sample
            in length, or holds a number that is not finite; a sample whose first token is marked as sampled (nothing
            predicts it).
    """
    for index, sample in enumerate(samples):
        _check(index, sample)
    for name in _NUMBERS.values():
        if len({getattr(sample, name) is None for sample in samples}) > 1:
            raise ValueError(f"some samples of a batch have {name}, others do not")
    counts = [int(sample.loss_mask.sum()) for sample in samples]
    weights = _weights(samples, counts, aggregation)
    laid = [
        index
        for index, sample in enumerate(samples)
        if counts[index] and not (skip_zero_advantage and not carries_advantage(sample))
    ]
    if not laid:
        raise ValueError(f"a batch of {len(samples)} samples has no sampled token to learn from")
    lengths = [len(samples[index]) for index in laid]
    layout = _core.pack(lengths, max(max_row_tokens * ranks_per_row, max(lengths)), ranks // ranks_per_row)
    rows = tuple(
        tuple(_row([laid[place] for place in places], samples, weights) for places in rank_rows) for rank_rows in layout
    )
    rows = tuple(own for own in rows for _ in range(ranks_per_row))
    return Batch(rows, sum(counts[index] for index in laid), sum(lengths), len(laid))


def _weights(
    samples: Sequence[TrainingSample], counts: Sequence[int], aggregation: Aggregation
) -> npt.NDArray[np.float64]:
    """The weight of each sample's tokens: an episode counts once, with the tokens of all its samples."""
    episodes = episodes_of(samples)
    weights = aggregation(np.array([sum(counts[index] for index in own) for own in episodes], dtype=np.int64))
    if np.shape(weights) != (len(episodes),):
        raise ValueError(f"the aggregation gave weights of shape {np.shape(weights)} for {len(episodes)} episodes")
    of_samples = np.zeros(len(samples))
    for own, weight in zip(episodes, weights, strict=True):
        of_samples[own] = weight
    return of_samples


def carries_advantage(sample: TrainingSample) -> bool:
    """Whether any token of the sample has an advantage that is not zero."""
    return sample.advantages is not None and bool(sample.advantages.any())


def has_loss(samples: Sequence[TrainingSample]) -> bool:
    """Whether any token was sampled and carries a loss."""
    return any(sample.loss_mask.any() for sample in samples)


def scatter_to_samples(
    samples: Sequence[TrainingSample], rows: Sequence[PackedRow], values: Sequence[Float32Array]
) -> list[Float32Array]:
    """Per-sample arrays from the `_K` values of rows: 0 where nothing was sampled."""
    result = [np.zeros(len(sample), dtype=np.float32) for sample in samples]
    for row, value_K in zip(rows, values, strict=True):
        for sample, offset, value in zip(row.sample_K, row.offset_K, value_K, strict=True):
            result[sample][offset] = value
    return result


# The arrays of a sample that become arrays of a row, by their names there.
_NUMBERS = {
    "advantage_K": "advantages",
    "rollout_logprob_K": "rollout_logprobs",
    "old_logprob_K": "old_logprobs",
    "ref_logprob_K": "ref_logprobs",
    "value_K": "values",
    "return_K": "returns",
}


def _check(index: int, sample: TrainingSample) -> None:
    for name in ("loss_mask", *_NUMBERS.values()):
        array = getattr(sample, name)
        if array is None:
            continue
        if len(array) != len(sample):
            raise ValueError(f"sample {index}: {name} has {len(array)} entries for {len(sample)} tokens")
        if name != "loss_mask" and not np.isfinite(array).all():
            raise ValueError(f"sample {index}: {name} holds a value that is not finite")
    if len(sample) and sample.loss_mask[0]:
        raise ValueError(f"sample {index}: the first token is marked as sampled, but nothing comes before it")


def _row(indices: Sequence[int], samples: Sequence[TrainingSample], weights: npt.NDArray[np.float64]) -> PackedRow:
    if not indices:
        return _empty_row()
    members = [samples[index] for index in indices]
    lengths = [len(member) for member in members]
    starts = np.cumsum([0, *lengths[:-1]])
    offsets = [np.flatnonzero(member.loss_mask) for member in members]
    counts = [len(offset) for offset in offsets]

    numbers: dict[str, Float32Array] = {}
    for name, source in _NUMBERS.items():
        arrays = [getattr(member, source) for member in members]
        if all(array is not None for array in arrays):  # of a batch all have it, or none
            numbers[name] = np.concatenate([array[offset] for array, offset in zip(arrays, offsets, strict=True)])

    token_ids_N = np.concatenate([member.token_ids for member in members])
    target_place_K = np.concatenate([start + offset for start, offset in zip(starts, offsets, strict=True)])
    return PackedRow(
        token_ids_N=token_ids_N,
        position_ids_N=np.concatenate([np.arange(length, dtype=np.int32) for length in lengths]),
        sample_lengths=tuple(lengths),
        samples=tuple(indices),
        predictor_K=target_place_K - 1,
        target_K=token_ids_N[target_place_K].astype(np.int64),
        sample_K=np.repeat(np.asarray(indices, dtype=np.int64), counts),
        offset_K=np.concatenate(offsets),
        weight_K=np.repeat(weights[list(indices)], counts).astype(np.float32),
        **numbers,
    )


def _empty_row() -> PackedRow:
    nothing = np.zeros(0, dtype=np.int64)
    nothing_float = np.zeros(0, dtype=np.float32)
    return PackedRow(
        token_ids_N=np.zeros(_EMPTY_ROW_TOKENS, dtype=np.int32),
        position_ids_N=np.arange(_EMPTY_ROW_TOKENS, dtype=np.int32),
        sample_lengths=(_EMPTY_ROW_TOKENS,),
        samples=(),
        predictor_K=nothing,
        target_K=nothing,
        sample_K=nothing,
        offset_K=nothing,
        weight_K=nothing_float,
        rollout_logprob_K=nothing_float,
    )
