"""Pack training samples into rows: samples concatenated without padding, with the same number of rows for each rank.

Axis suffixes: `_N` the tokens of a row, `_K` the sampled tokens of a row, the only ones with a loss.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import torl._core as _core
from torl.algorithms.aggregation import Aggregation, by_token
from torl.learner.imitation import ImitatedTokens, check_imitation, count_imitated
from torl.types import BoolArray, Float32Array, Int32Array, TrainingSample

Int64Array = npt.NDArray[np.int64]

# A rank without samples takes part in every forward and backward pass: ZeRO's collectives need all ranks.
_EMPTY_ROW_TOKENS = 2


@dataclass(frozen=True, slots=True)
class PackedRow:
    """Concatenated samples, the unit of a forward and backward pass.

    The optional arrays are None if the samples lack them.
    """

    token_ids_N: Int32Array
    position_ids_N: Int32Array
    """Positions, which start at 0 in each sample, so that attention separates the samples."""
    sample_lengths: tuple[int, ...]
    """Length of each sample in the row, in order. Their sum is N."""
    samples: tuple[int, ...]
    """Index of each sample in the batch. Empty for a row that only lets a rank take part in collectives."""
    predictor_K: Int64Array
    """Index in the row of the token that predicts each target, one to the left of the target."""
    target_K: Int64Array
    """Id of each sampled token."""
    sample_K: Int64Array
    """Index in the batch of each target's sample."""
    offset_K: Int64Array
    """Index of each target in its sample."""
    weight_K: Float32Array
    """Weight of each target's loss in the loss of the batch."""
    rollout_logprob_K: Float32Array
    on_policy_K: BoolArray | None = None
    """Whether the policy that is being trained sampled each target. None if its version or a sample's are unknown."""
    advantage_K: Float32Array | None = None
    old_logprob_K: Float32Array | None = None
    ref_logprob_K: Float32Array | None = None
    value_K: Float32Array | None = None
    return_K: Float32Array | None = None
    batch_value_K: Float32Array | None = None
    imitated: ImitatedTokens | None = None
    """Imitated tokens. None for a batch without imitated tokens, empty for a row without any."""

    def __len__(self) -> int:
        return len(self.token_ids_N)


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of every rank, and their totals."""

    rows: tuple[tuple[PackedRow, ...], ...]
    """Rows of each rank, the same number for all ranks."""
    sampled_tokens: int
    imitated_tokens: int
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
    policy_version: int | None = None,
) -> Batch:
    """Pack samples into rows for all ranks. The loss does not depend on the numbers of rows and ranks.

    Samples without a sampled or imitated token are left out. The cross-entropy of imitated tokens is divided by their
    number in the whole batch, regardless of `aggregation`.

    Args:
        samples: Samples of an optimizer step.
        max_row_tokens: Maximum number of tokens in a row. A longer sample makes longer rows.
        ranks: Number of ranks, a multiple of `ranks_per_row`.
        aggregation: Function that returns the loss weight of each episode. An episode of several samples counts once.
        skip_zero_advantage: Whether to leave out samples whose advantages are all 0, unless they imitate tokens, to
            save time. They still count in the aggregation.
        ranks_per_row: Number of neighboring ranks that get the same rows (sequence parallelism). Rows may be longer by
            this factor.
        policy_version: Version of the policy that is being trained, for `PackedRow.on_policy_K`.

    Raises:
        ValueError: No sample remains; only some samples have an array; an array differs from its sample in length or
            contains a non-finite number; or the first token of a sample is marked as sampled, which no token predicts.
    """
    for index, sample in enumerate(samples):
        _check(index, sample)
        check_imitation(index, sample)
    for name in _ARRAYS.values():
        if len({getattr(sample, name) is None for sample in samples}) > 1:
            raise ValueError(f"some samples of a batch have {name}, others do not")
    counts = [int(sample.loss_mask.sum()) for sample in samples]
    imitated = list(map(count_imitated, samples))
    weights = _weights(samples, counts, aggregation)
    packed = [
        index
        for index, sample in enumerate(samples)
        if imitated[index] or (counts[index] and not (skip_zero_advantage and not carries_advantage(sample)))
    ]
    if not packed:
        raise ValueError(f"a batch of {len(samples)} samples has no sampled or imitated token to learn from")
    lengths = [len(samples[index]) for index in packed]
    layout = _core.pack(lengths, max(max_row_tokens * ranks_per_row, max(lengths)), ranks // ranks_per_row)
    rows = tuple(
        tuple(
            _row([packed[index] for index in indices], samples, weights, policy_version, sum(imitated))
            for indices in rank_rows
        )
        for rank_rows in layout
    )
    rows = tuple(rank_rows for rank_rows in rows for _ in range(ranks_per_row))
    return Batch(rows, sum(counts[index] for index in packed), sum(imitated), sum(lengths), len(packed))


def _weights(
    samples: Sequence[TrainingSample], counts: Sequence[int], aggregation: Aggregation
) -> npt.NDArray[np.float64]:
    """Return the loss weight of each sample's tokens. An episode counts once, with the tokens of all its samples."""
    episodes = indices_by_episode(samples)
    weights = aggregation(np.array([sum(counts[index] for index in episode) for episode in episodes], dtype=np.int64))
    if np.shape(weights) != (len(episodes),):
        raise ValueError(f"the aggregation gave weights of shape {np.shape(weights)} for {len(episodes)} episodes")
    sample_weights = np.zeros(len(samples))
    for episode, weight in zip(episodes, weights, strict=True):
        sample_weights[episode] = weight
    return sample_weights


def indices_by_episode(samples: Sequence[TrainingSample]) -> list[list[int]]:
    """Return the indices of each episode's samples, in order. A sample without an episode forms one."""
    episodes: dict[Hashable, list[int]] = {}
    for index, sample in enumerate(samples):
        key = ("single", index) if sample.episode is None else sample.episode
        episodes.setdefault(key, []).append(index)
    return list(episodes.values())


def carries_advantage(sample: TrainingSample) -> bool:
    """Whether any token of the sample has an advantage that is not zero."""
    return sample.advantages is not None and bool(sample.advantages.any())


def has_loss(samples: Sequence[TrainingSample]) -> bool:
    """Whether any token was sampled and carries a loss."""
    return any(sample.loss_mask.any() for sample in samples)


def scatter_to_samples(
    samples: Sequence[TrainingSample], rows: Sequence[PackedRow], values: Sequence[Float32Array]
) -> list[Float32Array]:
    """Return the `_K` values of rows as one array for each sample, with 0 on tokens that were not sampled."""
    result = [np.zeros(len(sample), dtype=np.float32) for sample in samples]
    for row, value_K in zip(rows, values, strict=True):
        for sample, offset, value in zip(row.sample_K, row.offset_K, value_K, strict=True):
            result[sample][offset] = value
    return result


# The arrays of a sample, by the names of the corresponding arrays of a row.
_ARRAYS = {
    "advantage_K": "advantages",
    "rollout_logprob_K": "rollout_logprobs",
    "old_logprob_K": "old_logprobs",
    "ref_logprob_K": "ref_logprobs",
    "value_K": "values",
    "return_K": "returns",
    "batch_value_K": "batch_values",
}


def _check(index: int, sample: TrainingSample) -> None:
    for name in ("loss_mask", "policy_versions", *_ARRAYS.values()):
        array = getattr(sample, name)
        if array is None:
            continue
        if len(array) != len(sample):
            raise ValueError(f"sample {index}: {name} has {len(array)} entries for {len(sample)} tokens")
        if name != "loss_mask" and not np.isfinite(array).all():
            raise ValueError(f"sample {index}: {name} contains a value that is not finite")
    if len(sample) and sample.loss_mask[0]:
        raise ValueError(f"sample {index}: the first token is marked as sampled, but nothing comes before it")


def _row(
    indices: Sequence[int],
    samples: Sequence[TrainingSample],
    weights: npt.NDArray[np.float64],
    policy_version: int | None,
    imitated_tokens: int,
) -> PackedRow:
    members = [samples[index] for index in indices]
    lengths = [len(member) for member in members]
    starts = np.cumsum([0, *lengths])[:-1]
    imitated = ImitatedTokens.from_samples(members, starts.tolist(), imitated_tokens) if imitated_tokens else None
    if not indices:
        return _empty_row(imitated)
    offsets = [np.flatnonzero(member.loss_mask) for member in members]
    counts = [len(offset) for offset in offsets]

    sampled: dict[str, Float32Array] = {}
    for name, source in _ARRAYS.items():
        arrays = [getattr(member, source) for member in members]
        if all(array is not None for array in arrays):  # either all samples of a batch have it, or no sample
            sampled[name] = np.concatenate([array[offset] for array, offset in zip(arrays, offsets, strict=True)])

    versions = [
        member.policy_versions[offset]
        for member, offset in zip(members, offsets, strict=True)
        if member.policy_versions is not None
    ]
    known = policy_version is not None and len(versions) == len(members)
    token_ids_N = np.concatenate([member.token_ids for member in members])
    target_index_K = np.concatenate([start + offset for start, offset in zip(starts, offsets, strict=True)])
    return PackedRow(
        token_ids_N=token_ids_N,
        position_ids_N=np.concatenate([np.arange(length, dtype=np.int32) for length in lengths]),
        sample_lengths=tuple(lengths),
        samples=tuple(indices),
        predictor_K=target_index_K - 1,
        target_K=token_ids_N[target_index_K].astype(np.int64),
        sample_K=np.repeat(np.asarray(indices, dtype=np.int64), counts),
        offset_K=np.concatenate(offsets),
        weight_K=np.repeat(weights[list(indices)], counts).astype(np.float32),
        on_policy_K=np.concatenate(versions) == policy_version if known else None,
        imitated=imitated,
        **sampled,
    )


def _empty_row(imitated: ImitatedTokens | None) -> PackedRow:
    no_indices = np.zeros(0, dtype=np.int64)
    no_numbers = np.zeros(0, dtype=np.float32)
    return PackedRow(
        token_ids_N=np.zeros(_EMPTY_ROW_TOKENS, dtype=np.int32),
        position_ids_N=np.arange(_EMPTY_ROW_TOKENS, dtype=np.int32),
        sample_lengths=(_EMPTY_ROW_TOKENS,),
        samples=(),
        predictor_K=no_indices,
        target_K=no_indices,
        sample_K=no_indices,
        offset_K=no_indices,
        weight_K=no_numbers,
        rollout_logprob_K=no_numbers,
        imitated=imitated,
    )
