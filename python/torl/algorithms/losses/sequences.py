"""Sums over whole sequences, given back to each of their tokens. `sequences` (int64) numbers them from 0."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def sequence_sums(values: "Tensor", sequences: "Tensor") -> "Tensor":
    """For each token the sum of `values` over its sequence."""
    count = int(sequences.max()) + 1 if sequences.numel() else 0
    sums = values.new_zeros(count).index_add(0, sequences.flatten(), values.flatten())
    return sums[sequences]


def sequence_means(values: "Tensor", loss_mask: "Tensor", sequences: "Tensor") -> "Tensor":
    """For each token the mean of `values` (0 outside the mask) over the masked tokens of its sequence."""
    counts = sequence_sums(loss_mask.to(values.dtype), sequences)
    return sequence_sums(values, sequences) / counts.clamp(min=1)
