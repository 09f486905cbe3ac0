"""The numbers of the tokens of some samples, collected while an optimizer step computes them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from torl.base.types import Float32Array
from torl.learner.rows import PackedRow


@dataclass(frozen=True, slots=True)
class TokenRecorder:
    """Collects the numbers of some samples of a batch.

    Attributes:
        wanted: Indices of the samples in the batch.
        found: Arrays (K,) of each sample by name, over its tokens with a loss.
    """

    wanted: Collection[int]
    found: dict[int, dict[str, Float32Array]] = field(default_factory=dict)

    def add(self, row: PackedRow, tokens: Mapping[str, Tensor]) -> None:
        """Copy the numbers of the samples in a row, given as tensors over its sampled tokens."""
        wanted = [sample for sample in row.samples if sample in self.wanted]
        if not wanted:
            return
        arrays = {name: tensor.float().cpu().numpy() for name, tensor in tokens.items()}
        for sample in wanted:
            places = np.flatnonzero(row.sample_K == sample)
            self.found[sample] = {name: array[places] for name, array in arrays.items()}
