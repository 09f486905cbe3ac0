"""Sums and means over sequences, for each of their tokens. `sequences` has the index of each token's sequence."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def sequence_sums(values: "Tensor", sequences: "Tensor") -> "Tensor":
    """Return the sum of `values` over the sequence of each token."""
    count = int(sequences.max()) + 1 if sequences.numel() else 0
    sums = values.new_zeros(count).index_add(0, sequences.flatten(), values.flatten())
    return sums[sequences]


def sequence_means(values: "Tensor", loss_mask: "Tensor", sequences: "Tensor") -> "Tensor":
    """Return the mean of `values`, which are 0 outside the mask, over the sampled tokens of each token's sequence."""
    counts = sequence_sums(loss_mask.to(values.dtype), sequences)
    return sequence_sums(values, sequences) / counts.clamp(min=1)
