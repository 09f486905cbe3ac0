"""Policy and value losses on aligned per-token tensors: a flat batch, packed rows, or any other shape they all have.

Everything here is token by token, or a sum over tokens. A caller that cuts a batch into micro-batches or ranks
multiplies by the weights of `torl.algorithms.aggregation`, which know the *global* batch, and adds the parts up; so no
result depends on the cut. Losses and weights of whole sequences need all tokens of a sequence in one call. Positions
where `loss_mask` is False never matter, whatever they hold.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias, assert_never

import torch
from torch import Tensor

from torl.algorithms.advantages import LOG_RATIO_LIMIT, KlEstimator

ImportanceCorrection: TypeAlias = Literal["tis", "icepop", "mis"]


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """A policy loss token by token, and sums that describe the update (divide by the sampled tokens)."""

    per_token: Tensor  # shape of the inputs, 0 outside the mask; carries the gradient
    clipped_tokens: Tensor  # scalar: tokens on which the clip took the gradient away (CISPO: changed its weight)
    dual_clipped_tokens: Tensor  # scalar: tokens on which the dual clip did
    approximate_kl: Tensor  # scalar: sum of k3, an estimate of KL(old || current), never negative


@dataclass(frozen=True, slots=True)
class ValueLoss:
    """A critic's loss token by token, and how often its clip held."""

    per_token: Tensor  # shape of the inputs, 0 outside the mask; carries the gradient
    clipped_tokens: Tensor  # scalar


@dataclass(frozen=True, slots=True)
class LogprobGap:
    """How far the engine and the trainer are apart on the same weights, over sampled tokens. Scalars."""

    absolute_sum: Tensor  # sum of |old - rollout|
    absolute_max: Tensor
    kl: Tensor  # sum of k3, an estimate of KL(rollout || old), never negative


# --- policy losses: all tensors have one shape, `loss_mask` is bool, gradients flow through `logprobs` only ---


def clipped_policy_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    loss_mask: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
) -> PolicyLoss:
    """PPO's clipped loss, token by token: -min(ratio * A, clip(ratio, 1 - clip_low, 1 + clip_high) * A).

    ratio = exp(logprobs - old_logprobs), the difference limited to +-20. `clip_high > clip_low` is DAPO's
    clip-higher. With `dual_clip` = c > 1 the loss of a token with A < 0 is at most c * |A| (Ye et al. 2020,
    equation 5; c = 3 in algorithms that use it).
    """
    log_ratio = _limited_difference(logprobs, old_logprobs.detach(), loss_mask)
    return _clipped(log_ratio, log_ratio, advantages, loss_mask, clip_low, clip_high, dual_clip)


def gspo_policy_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    loss_mask: Tensor,
    sequences: Tensor,
    *,
    clip_low: float,
    clip_high: float,
) -> PolicyLoss:
    """GSPO (arXiv 2507.18071): the clipped loss of one ratio for each sequence, exp(mean log ratio).

    `sequences` (int64) numbers the sequence of each token from 0. This is the paper's GSPO-token (equation 13): each
    token's loss has the value of its sequence's ratio and the gradient of its own logprob, which makes sense of
    advantages and weights that differ within a sequence. Where they do not, value and gradient are those of equation 5
    under aggregation `sequence`. The clip range is far narrower than a token's (the paper's: 3e-4 and 4e-4).
    """
    token_log_ratio = _limited_difference(logprobs, old_logprobs.detach(), loss_mask)
    of_sequence = _sequence_means(token_log_ratio.detach(), loss_mask, sequences)
    log_ratio = torch.where(loss_mask, of_sequence, 0.0) + token_log_ratio - token_log_ratio.detach()
    return _clipped(log_ratio, token_log_ratio, advantages, loss_mask, clip_low, clip_high, None)


def cispo_policy_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    loss_mask: Tensor,
    *,
    clip_low: float,
    clip_high: float,
) -> PolicyLoss:
    """CISPO (arXiv 2506.13585, equation 4): -clip(ratio, 1 - clip_low, 1 + clip_high) * A * logprob.

    The clipped ratio carries no gradient, so that no token loses its own. The paper leaves the lower end open:
    `clip_low` of 1 or more.
    """
    log_ratio = _limited_difference(logprobs.detach(), old_logprobs, loss_mask)
    ratio = log_ratio.exp()
    weight = ratio.clamp(1 - clip_low, 1 + clip_high)
    return _likelihood(logprobs, weight, advantages, loss_mask, log_ratio, clipped=weight != ratio)


def reinforce_policy_loss(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, loss_mask: Tensor) -> PolicyLoss:
    """REINFORCE without ratio or clip: -A * logprob. Only the first update of a step is on its own policy's samples."""
    log_ratio = _limited_difference(logprobs.detach(), old_logprobs, loss_mask)
    weight = torch.ones_like(logprobs)
    return _likelihood(logprobs, weight, advantages, loss_mask, log_ratio, clipped=torch.zeros_like(loss_mask))


# --- what is added to a policy loss, and what it is multiplied by ------------------------------------------


def kl_to_reference(logprobs: Tensor, ref_logprobs: Tensor, loss_mask: Tensor, estimator: KlEstimator) -> Tensor:
    """An estimate of KL(policy || reference) on each token, from the sampled token alone; 0 outside the mask.

    With x = ref_logprobs - logprobs (limited to +-20): "k1" is -x, "k2" x^2 / 2, "k3" e^x - x - 1 (Schulman 2020).
    As a loss, k2 has the gradient of the KL divergence; k3 has nearly that close to the reference; the gradient of k1
    is 0 in expectation: it belongs into the reward.
    """
    x = _limited_difference(ref_logprobs.detach(), logprobs, loss_mask)
    if estimator == "k1":
        return -x
    if estimator == "k2":
        return x.square() / 2
    if estimator == "k3":
        return _k3(x)
    assert_never(estimator)


def importance_weights(
    correction: ImportanceCorrection,
    old_logprobs: Tensor,
    rollout_logprobs: Tensor,
    loss_mask: Tensor,
    sequences: Tensor,
    *,
    low: float,
    high: float,
) -> Tensor:
    """What each token's loss is multiplied by because the engine that sampled it differs from the trainer.

    With w = exp(old_logprobs - rollout_logprobs), without gradient, 1 outside the mask:

    - "tis": min(w, high) (truncated importance sampling)
    - "icepop": w where low <= w <= high, else 0 (arXiv 2510.18855)
    - "mis": the product of w over the whole sequence where that is within [low, high], else 0 for all of it

    A token with weight 0 still counts in what the loss is divided by.
    """
    log_weights = _limited_difference(old_logprobs, rollout_logprobs, loss_mask).detach()
    if correction == "tis":
        return log_weights.exp().clamp(max=high)
    if correction == "mis":
        totals = _sequence_sums(log_weights, sequences).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
        log_weights = torch.where(loss_mask, totals, 0.0)
    weights = log_weights.exp()
    return torch.where(loss_mask & ((weights < low) | (weights > high)), 0.0, weights)


def logprob_gap(old_logprobs: Tensor, rollout_logprobs: Tensor, loss_mask: Tensor) -> LogprobGap:
    """The gap between trainer and engine over sampled tokens; 0 throughout for an empty mask."""
    difference = torch.where(loss_mask, old_logprobs - rollout_logprobs, 0.0).detach()
    absolute = difference.abs()
    return LogprobGap(
        absolute_sum=absolute.sum(),
        absolute_max=absolute.max() if absolute.numel() else absolute.sum(),
        kl=_k3(difference.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)).sum(),
    )


# --- the critic --------------------------------------------------------------------------------------------


def clipped_value_loss(
    values: Tensor, old_values: Tensor, returns: Tensor, loss_mask: Tensor, *, clip: float | None
) -> ValueLoss:
    """Half the squared error, the larger of that of `values` and of `values` kept within `clip` of `old_values`.

    As in PPO's reference code; None does not clip. Gradients flow through `values` only.
    """
    values, old_values, returns = (
        torch.where(loss_mask, tensor, 0.0) for tensor in (values, old_values.detach(), returns.detach())
    )
    errors = (values - returns).square()
    if clip is None:
        return ValueLoss(errors / 2, torch.zeros_like(loss_mask).sum())
    kept = old_values + (values - old_values).clamp(-clip, clip)
    clipped = (kept - returns).square()
    return ValueLoss(torch.maximum(errors, clipped) / 2, (clipped > errors).sum())


# --- shared ------------------------------------------------------------------------------------------------


def _clipped(
    log_ratio: Tensor,
    token_log_ratio: Tensor,
    advantages: Tensor,
    loss_mask: Tensor,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None,
) -> PolicyLoss:
    if dual_clip is not None and dual_clip <= 1:
        raise ValueError(f"dual_clip is {dual_clip}: it must be greater than 1")
    ratio = log_ratio.exp()
    advantages = torch.where(loss_mask, advantages, 0.0).detach()
    unclipped = -ratio * advantages
    clipped = -ratio.clamp(1 - clip_low, 1 + clip_high) * advantages
    per_token = torch.maximum(unclipped, clipped)
    is_clipped = clipped > unclipped
    is_dual_clipped = torch.zeros_like(is_clipped)
    if dual_clip is not None:
        ceiling = -dual_clip * advantages
        is_dual_clipped = (advantages < 0) & (per_token > ceiling)
        per_token = torch.where(is_dual_clipped, ceiling, per_token)
    return PolicyLoss(
        per_token=torch.where(loss_mask, per_token, 0.0),
        clipped_tokens=(is_clipped & loss_mask).sum(),
        dual_clipped_tokens=(is_dual_clipped & loss_mask).sum(),
        approximate_kl=_k3(token_log_ratio.detach()).sum(),
    )


def _likelihood(
    logprobs: Tensor, weight: Tensor, advantages: Tensor, loss_mask: Tensor, log_ratio: Tensor, *, clipped: Tensor
) -> PolicyLoss:
    """The log-likelihood, weighed: -weight * A * logprob."""
    coefficient = torch.where(loss_mask, weight * advantages, 0.0).detach()
    return PolicyLoss(
        per_token=-coefficient * torch.where(loss_mask, logprobs, 0.0),
        clipped_tokens=(clipped & loss_mask).sum(),
        dual_clipped_tokens=torch.zeros_like(loss_mask).sum(),
        approximate_kl=_k3(log_ratio.detach()).sum(),
    )


def _sequence_sums(values: Tensor, sequences: Tensor) -> Tensor:
    """For each token the sum of `values` over its sequence."""
    count = int(sequences.max()) + 1 if sequences.numel() else 0
    sums = values.new_zeros(count).index_add(0, sequences.flatten(), values.flatten())
    return sums[sequences]


def _sequence_means(values: Tensor, loss_mask: Tensor, sequences: Tensor) -> Tensor:
    """For each token the mean of `values` (0 outside the mask) over the masked tokens of its sequence."""
    counts = _sequence_sums(loss_mask.to(values.dtype), sequences)
    return _sequence_sums(values, sequences) / counts.clamp(min=1)


def _limited_difference(logprobs: Tensor, reference_logprobs: Tensor, loss_mask: Tensor) -> Tensor:
    """`logprobs - reference_logprobs` within +-`LOG_RATIO_LIMIT`, 0 outside the mask."""
    difference = torch.where(loss_mask, logprobs - reference_logprobs, 0.0)
    return difference.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def _k3(log_ratio: Tensor) -> Tensor:
    """Schulman's k3 estimate of the KL divergence from the sampling distribution: e^x - x - 1 >= 0."""
    return torch.expm1(log_ratio) - log_ratio
