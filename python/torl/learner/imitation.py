"""Imitated tokens of packed rows: tokens with a cross-entropy loss, sampled, observed or neither.

Axis suffix `_J`: the imitated tokens of a row. They are separate from its sampled tokens: a token can be both.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from torl.base.types import Float32Array, TrainingSample

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ImitatedTokens:
    """The imitated tokens of a row."""

    predictor_J: Int64Array
    """Index in the row of the token that predicts each target, one to the left of the target."""
    target_J: Int64Array
    """Id of each imitated token."""
    weight_J: Float32Array
    """Weight of each token's cross-entropy in the loss of the batch."""

    @classmethod
    def from_samples(
        cls,
        samples: Sequence[TrainingSample],
        predictors: Sequence[Callable[[Int64Array], Int64Array]],
        divisor: int,
    ) -> "ImitatedTokens":
        """Collect the imitated tokens of a row.

        Args:
            samples: Samples of the row, in order. Samples without weights have no imitated token.
            predictors: For each sample, function that returns the index in the row of the token before each of its
                tokens.
            divisor: Number of imitated tokens in the global batch, by which the weights are divided.
        """
        present = [(each, sample, sample.imitation_weights) for each, sample in zip(predictors, samples, strict=True)]
        parts = [
            (predicting(np.flatnonzero(weights)), sample.token_ids[weights > 0], weights[weights > 0])
            for predicting, sample, weights in present
            if weights is not None
        ]
        if not parts:
            return cls(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))
        places, targets, weights = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return cls(
            places.astype(np.int64), targets.astype(np.int64), (weights.astype(np.float64) / divisor).astype("f4")
        )


def count_imitated(sample: TrainingSample) -> int:
    """Return the number of tokens that a sample imitates."""
    return 0 if sample.imitation_weights is None else int(np.count_nonzero(sample.imitation_weights))


def without_imitation(samples: Sequence[TrainingSample]) -> list[TrainingSample]:
    """Return the samples without imitated tokens, for computations on sampled tokens only."""
    return [
        sample if sample.imitation_weights is None else replace(sample, imitation_weights=None) for sample in samples
    ]


def check_imitation(index: int, sample: TrainingSample) -> None:
    """Check the imitation weights of a sample.

    Raises:
        ValueError: The weights differ from the sample in length, a weight is negative or not finite, or the first token
            has a weight, although no token predicts it.
    """
    weights = sample.imitation_weights
    if weights is None:
        return
    if len(weights) != len(sample):
        raise ValueError(f"sample {index}: imitation_weights has {len(weights)} entries for {len(sample)} tokens")
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise ValueError(f"sample {index}: imitation_weights must be finite and at least 0")
    if len(weights) and weights[0] > 0:
        raise ValueError(f"sample {index}: the first token is imitated, but nothing comes before it")
