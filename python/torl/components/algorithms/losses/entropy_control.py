"""Policy losses that treat a few tokens of the batch differently, to keep entropy: Clip-Cov, KL-Cov, 80/20.

The tokens are chosen among all of an optimizer step's batch, before it is cut into rows, with the log-probabilities and
entropies before the first update of the step.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from torl.base.guard import InvalidResultError, describe
from torl.base.options import NonNegativeFloat, PositiveFraction
from torl.base.types import Float32Array
from torl.components.algorithms.losses.policy import LossInputs, PolicyLossValues, clipped_policy_loss
from torl.components.algorithms.requirements import requires


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


def covariances(batch: BatchTokens) -> Float32Array:
    """Return (A - mean A) * (log-probability - its mean) of each token, with means over the batch (shape K)."""
    assert batch.old_logprobs_K is not None  # required
    advantages_K, logprobs_K = batch.advantages_K.astype(np.float64), batch.old_logprobs_K.astype(np.float64)
    if not len(advantages_K):
        return np.empty(0, np.float32)
    found: Float32Array = ((advantages_K - advantages_K.mean()) * (logprobs_K - logprobs_K.mean())).astype(np.float32)
    return found


def _clipped_tokens(batch: BatchTokens, share: float, covariance_range: tuple[float, float]) -> Float32Array:
    """Return 1 for the tokens that Clip-Cov drops, else 0: a random choice of those with a covariance in the range."""
    covariances_K, (low, high) = covariances(batch), covariance_range
    found = np.flatnonzero((covariances_K > low) & (covariances_K < high))
    count = min(len(found), max(1, int(share * len(covariances_K))))
    chosen = np.random.default_rng(batch.seed).choice(found, count, replace=False) if count else found
    return _ones_at(chosen, len(covariances_K))


def _largest_tokens(batch: BatchTokens, share: float) -> Float32Array:
    """Return 1 for the tokens with the largest covariances, else 0. Equal ones are taken in order."""
    covariances_K = covariances(batch)
    count = min(len(covariances_K), max(1, int(share * len(covariances_K))))
    return _ones_at(np.argsort(-covariances_K, kind="stable")[:count], len(covariances_K))


def _uncertain_tokens(batch: BatchTokens, share: float) -> Float32Array:
    """Return 1 for the tokens whose entropy is at least the quantile 1 - `share` of the batch, else 0."""
    assert batch.entropies_K is not None  # required
    if not len(batch.entropies_K):
        return np.empty(0, np.float32)
    limit = np.quantile(batch.entropies_K.astype(np.float64), 1 - share)
    return (batch.entropies_K >= np.float32(limit)).astype(np.float32)


def _ones_at(indices: "np.ndarray[tuple[int], np.dtype[np.int64]]", count: int) -> Float32Array:
    values_K = np.zeros(count, np.float32)
    values_K[indices] = 1.0
    return values_K


@requires(old_logprobs=True, batch_values=_clipped_tokens)
def clip_cov_policy_loss(
    inputs: LossInputs,
    *,
    share: PositiveFraction = 2e-4,
    covariance_range: tuple[float, float] = (1.0, 5.0),
    clip_low: NonNegativeFloat = 0.2,
    clip_high: NonNegativeFloat = 0.2,
) -> PolicyLossValues:
    """Clip-Cov (arXiv 2505.22617, equation 12): the clipped loss without a few tokens of high covariance.

    The tokens are chosen before the first update, when none is clipped by its ratio; the published code chooses in
    every update, among tokens that are not.

    Args:
        inputs: Inputs of the loss.
        share: Fraction of the batch's tokens that is dropped, at random among those with a covariance in the range.
        covariance_range: Bounds of the covariance of advantage and log-probability.
        clip_low: Lower clip range of the importance ratio, which is clipped at `1 - clip_low`.
        clip_high: Upper clip range of the importance ratio, which is clipped at `1 + clip_high`.
    """
    assert inputs.batch_values is not None  # required
    loss = clipped_policy_loss(inputs, clip_low=clip_low, clip_high=clip_high)
    return loss.without(inputs, inputs.batch_values > 0)


@requires(old_logprobs=True, batch_values=_largest_tokens, all_tokens="penalty")
def kl_cov_policy_loss(
    inputs: LossInputs, *, share: PositiveFraction = 2e-4, penalty: NonNegativeFloat = 1.0
) -> PolicyLossValues:
    """KL-Cov (arXiv 2505.22617, equation 13): -ratio * A, plus a penalty on the tokens of the highest covariance.

    The penalty is on |log ratio|, as in the published code, which chooses the tokens again in every update.

    Args:
        inputs: Inputs of the loss.
        share: Fraction of the batch's tokens that has the penalty.
        penalty: Coefficient of the absolute log ratio.
    """
    assert inputs.batch_values is not None  # required
    log_ratio = inputs.log_ratio()
    per_token = -log_ratio.exp() * inputs.masked_advantages()
    return PolicyLossValues.from_per_token(inputs, per_token + penalty * inputs.batch_values * log_ratio.abs())


@requires(entropies=True, batch_values=_uncertain_tokens)
def high_entropy_policy_loss(
    inputs: LossInputs,
    *,
    share: PositiveFraction = 0.2,
    clip_low: NonNegativeFloat = 0.2,
    clip_high: NonNegativeFloat = 0.2,
) -> PolicyLossValues:
    """The clipped loss of the tokens of highest entropy alone ("Beyond the 80/20 rule", arXiv 2506.01939, equation 5).

    The dropped tokens still count in the aggregation.

    Args:
        inputs: Inputs of the loss.
        share: Fraction of the batch's tokens that is trained.
        clip_low: Lower clip range of the importance ratio, which is clipped at `1 - clip_low`.
        clip_high: Upper clip range of the importance ratio, which is clipped at `1 + clip_high`.
    """
    assert inputs.batch_values is not None  # required
    loss = clipped_policy_loss(inputs, clip_low=clip_low, clip_high=clip_high)
    return PolicyLossValues.from_per_token(inputs, loss.per_token * inputs.batch_values, clipped=loss.clipped)
