"""The batch of an optimizer step as a whole, for policy losses that depend on more than a sequence. No torch."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from torl.base.guard import InvalidResultError, describe
from torl.base.types import Float32Array


@dataclass(frozen=True, slots=True)
class BatchTokens:
    """All sampled tokens of the batch of an optimizer step, concatenated (axis `_K`).

    The batch does not depend on the numbers of rows and ranks. Its trajectories without an advantage are included.

    Attributes:
        advantages_K: Advantage of each token.
        rollout_logprobs_K: Log-probabilities according to the engine.
        sequences_K: Index of each token's sequence, ascending from 0.
        seed: Random seed for choices of the loss, different for each optimizer step.
        old_logprobs_K: Log-probabilities according to the trainer, before the first update of the step. None unless
            required, or taken with several optimizer steps.
        ref_logprobs_K: Log-probabilities according to the reference model. None unless required.
        entropies_K: Entropies of the policy before the first update of the step. None unless required.
    """

    advantages_K: Float32Array
    rollout_logprobs_K: Float32Array
    sequences_K: npt.NDArray[np.int64]
    seed: int
    old_logprobs_K: Float32Array | None = None
    ref_logprobs_K: Float32Array | None = None
    entropies_K: Float32Array | None = None


def check_batch_values(values_K: object, batch: BatchTokens) -> None:
    """Check the result of a `batch_values` function.

    Raises:
        InvalidResultError: `values_K` is not an array with one finite number for each token.
    """
    if not isinstance(values_K, np.ndarray) or not np.issubdtype(values_K.dtype, np.floating):
        raise InvalidResultError(f"expected an array of floats, got {describe(values_K)}")
    if values_K.shape != batch.advantages_K.shape:
        raise InvalidResultError(f"expected values of shape {batch.advantages_K.shape}, got {values_K.shape}")
    if not np.isfinite(values_K).all():
        raise InvalidResultError("values must be finite")
