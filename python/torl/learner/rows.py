"""Rows of the learner: samples concatenated without padding. Samples with the same prompt can share it.

Axis suffixes: `_N` the tokens of a row, `_K` the sampled tokens of a row, the only ones with a loss.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from torl.base.types import BoolArray, Float32Array, Int32Array, TrainingSample
from torl.learner.imitation import ImitatedTokens
from torl.learner.shared_prompts import RowUnit, first_learned

if TYPE_CHECKING:
    from torch import Tensor

Int64Array = npt.NDArray[np.int64]

SAMPLED_ARRAYS = {
    "advantage_K": "advantages",
    "rollout_logprob_K": "rollout_logprobs",
    "old_logprob_K": "old_logprobs",
    "ref_logprob_K": "ref_logprobs",
    "value_K": "values",
    "return_K": "returns",
    "batch_value_K": "batch_values",
}
"""The arrays of a sample, by the names of the corresponding arrays of a row."""

# A rank without samples takes part in every forward and backward pass: ZeRO's collectives need all ranks.
_EMPTY_ROW_TOKENS = 2


@dataclass(frozen=True, slots=True)
class RowPieces:
    """The pieces of a row, in order: whole samples, or a prompt and what each of its samples adds to it."""

    lengths: tuple[int, ...]
    """Length of each piece. Their sum is N."""
    prompts: tuple[int | None, ...]
    """Index of the piece with the prompt that each piece continues. None for a prompt and for a whole sample."""

    @property
    def share_prompts(self) -> bool:
        """Whether some piece continues a prompt."""
        return any(prompt is not None for prompt in self.prompts)

    def with_padding(self, length: int) -> "RowPieces":
        """Return the pieces of a row with padding at the end, which is a separate sample."""
        return RowPieces((*self.lengths, length), (*self.prompts, None)) if length else self


@dataclass(frozen=True, slots=True)
class PackedRow:
    """Concatenated samples, the unit of a forward and backward pass.

    The optional arrays are None if the samples lack them.
    """

    token_ids_N: Int32Array
    position_ids_N: Int32Array
    """Positions in the samples. They start at 0 in each sample or prompt."""
    pieces: RowPieces
    """Pieces of the row: a token attends to the tokens before it in its piece, and to the prompt that the piece
    continues."""
    samples: tuple[int, ...]
    """Index of each sample in the batch. Empty for a row that only lets a rank take part in collectives."""
    predictor_K: Int64Array
    """Index in the row of the token that predicts each target: the one before it in its sample."""
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
class _Place:
    """The place of a sample in a row."""

    start: int
    """Index that the sample's first token has, or would have if its prompt were not shared."""
    first: int
    """Index in the sample of the first token that is learned. Only tokens before it are shared."""
    predictor: int
    """Index in the row of the token that predicts it."""

    def predictors(self, offsets: Int64Array) -> Int64Array:
        """Return the index in the row of the token before each learned token of the sample."""
        return np.where(offsets == self.first, self.predictor, self.start + offsets - 1)


def make_row(
    units: Sequence[RowUnit],
    samples: Sequence[TrainingSample],
    weights: npt.NDArray[np.float64],
    policy_version: int | None,
    imitated_tokens: int,
) -> PackedRow:
    """Make a row of units.

    Args:
        units: Units of the row. Without any, the row only lets a rank take part in collectives.
        samples: Samples of the batch.
        weights: Loss weight of a token of each sample of the batch.
        policy_version: Version of the policy that is being trained, for `PackedRow.on_policy_K`.
        imitated_tokens: Number of imitated tokens of the batch.
    """
    indices = [index for unit in units for index in unit.samples]
    members = [samples[index] for index in indices]
    parts, positions, prompts, places = _lay_out(units, samples)
    imitated = None
    if imitated_tokens:
        imitated = ImitatedTokens.from_samples(members, [place.predictors for place in places], imitated_tokens)
    if not indices:
        return _empty_row(imitated)
    offsets = [np.flatnonzero(member.loss_mask) for member in members]
    counts = [len(offset) for offset in offsets]

    def learned(arrays: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        return np.concatenate([array[offset] for array, offset in zip(arrays, offsets, strict=True)])

    sampled: dict[str, Float32Array] = {}
    for name, source in SAMPLED_ARRAYS.items():
        arrays = [getattr(member, source) for member in members]
        if all(array is not None for array in arrays):  # either all samples of a batch have it, or no sample
            sampled[name] = learned(arrays)
    versions = [member.policy_versions for member in members if member.policy_versions is not None]
    known = policy_version is not None and len(versions) == len(members)
    return PackedRow(
        token_ids_N=np.concatenate(parts),
        position_ids_N=np.concatenate(positions),
        pieces=RowPieces(tuple(map(len, parts)), tuple(prompts)),
        samples=tuple(indices),
        predictor_K=np.concatenate([place.predictors(part) for place, part in zip(places, offsets, strict=True)]),
        target_K=learned([member.token_ids for member in members]).astype(np.int64),
        sample_K=np.repeat(np.asarray(indices, dtype=np.int64), counts),
        offset_K=np.concatenate(offsets),
        weight_K=np.repeat(weights[indices], counts).astype(np.float32),
        on_policy_K=learned(versions) == policy_version if known else None,
        imitated=imitated,
        **sampled,
    )


def _lay_out(
    units: Sequence[RowUnit], samples: Sequence[TrainingSample]
) -> tuple[list[Int32Array], list[Int32Array], list[int | None], list[_Place]]:
    """Return the tokens and the positions of each piece, the piece that it continues, and the place of each sample."""
    parts: list[Int32Array] = []
    positions: list[Int32Array] = []
    prompts: list[int | None] = []
    places: list[_Place] = []
    end = 0

    def add(token_ids: Int32Array, first_position: int, prompt: int | None) -> None:
        nonlocal end
        parts.append(token_ids)
        positions.append(np.arange(first_position, first_position + len(token_ids), dtype=np.int32))
        prompts.append(prompt)
        end += len(token_ids)

    for unit in units:
        shared, prompt, prompt_start = unit.shared_tokens, None, end
        if shared:
            prompt = len(parts)
            add(samples[unit.samples[0]].token_ids[:shared], 0, None)
        for sample in (samples[index] for index in unit.samples):
            start, first = end - shared, first_learned(sample)
            places.append(_Place(start, first, (prompt_start if shared else start) + first - 1))
            add(sample.token_ids[shared:], shared, prompt)
    return parts, positions, prompts, places


def _empty_row(imitated: ImitatedTokens | None) -> PackedRow:
    no_indices = np.zeros(0, dtype=np.int64)
    no_numbers = np.zeros(0, dtype=np.float32)
    return PackedRow(
        token_ids_N=np.zeros(_EMPTY_ROW_TOKENS, dtype=np.int32),
        position_ids_N=np.arange(_EMPTY_ROW_TOKENS, dtype=np.int32),
        pieces=RowPieces((_EMPTY_ROW_TOKENS,), (None,)),
        samples=(),
        predictor_K=no_indices,
        target_K=no_indices,
        sample_K=no_indices,
        offset_K=no_indices,
        weight_K=no_numbers,
        rollout_logprob_K=no_numbers,
        imitated=imitated,
    )


@dataclass(frozen=True, slots=True)
class TokenRecorder:
    """Collects the numbers of some samples of a batch.

    Attributes:
        wanted: Indices of the samples in the batch.
        found: Arrays (K,) of each sample by name, over its tokens with a loss.
    """

    wanted: Collection[int]
    found: dict[int, dict[str, Float32Array]] = field(default_factory=dict)

    def add(self, row: PackedRow, tokens: Mapping[str, "Tensor"]) -> None:
        """Copy the numbers of the samples in a row, given as tensors over its sampled tokens."""
        wanted = [sample for sample in row.samples if sample in self.wanted]
        if not wanted:
            return
        arrays = {name: tensor.float().cpu().numpy() for name, tensor in tokens.items()}
        for sample in wanted:
            places = np.flatnonzero(row.sample_K == sample)
            self.found[sample] = {name: array[places] for name, array in arrays.items()}
