"""Policy losses on aligned per-token tensors of any one shape: rows, packed rows, or a flat batch.

Everything here is a sum over tokens. A caller that cuts a batch into micro-batches or ranks adds the parts up, and
divides by numbers of the *global* batch only; so no result depends on the cut. Positions where `loss_mask` is
False never matter, whatever they hold.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

# exp(20) is 5e8: far outside any trust region, and far from infinity even when multiplied and summed.
LOG_RATIO_LIMIT = 20.0


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """A policy loss token by token, and sums that describe the update (divide by the sampled tokens, see above)."""

    per_token: Tensor  # shape of the inputs, 0 outside the mask; carries the gradient
    clipped_tokens: Tensor  # scalar: tokens on which the clip took the gradient away
    dual_clipped_tokens: Tensor  # scalar: tokens on which the dual clip did
    approximate_kl: Tensor  # scalar: sum of k3, an estimate of KL(old || current), never negative


@dataclass(frozen=True, slots=True)
class LogprobGap:
    """How far the engine and the trainer are apart on the same weights, over sampled tokens. Scalars."""

    absolute_sum: Tensor  # sum of |old - rollout|
    absolute_max: Tensor
    kl: Tensor  # sum of k3, an estimate of KL(rollout || old), never negative


def clipped_policy_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    loss_mask: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
    importance_weights: Tensor | None = None,
) -> PolicyLoss:
    """PPO's clipped loss, token by token: -min(ratio * A, clip(ratio, 1 - clip_low, 1 + clip_high) * A).

    ratio = exp(logprobs - old_logprobs), the difference limited to +-20. `clip_high > clip_low` is DAPO's
    clip-higher. With `dual_clip` = c > 1 the loss of a token with A < 0 is at most c * |A| (Ye et al. 2020,
    equation 5; c = 3 in algorithms that use it). `importance_weights` multiply the loss of each token and carry no
    gradient. All tensors have one shape; `loss_mask` is bool; gradients flow through `logprobs` only.
    """
    if dual_clip is not None and dual_clip <= 1:
        raise ValueError(f"dual_clip is {dual_clip}: it must be greater than 1")
    log_ratio = _limited_difference(logprobs, old_logprobs.detach(), loss_mask)
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
    if importance_weights is not None:
        per_token = per_token * importance_weights.detach()
    return PolicyLoss(
        per_token=torch.where(loss_mask, per_token, 0.0),
        clipped_tokens=(is_clipped & loss_mask).sum(),
        dual_clipped_tokens=(is_dual_clipped & loss_mask).sum(),
        approximate_kl=_k3(log_ratio.detach()).sum(),
    )


def token_mean(per_token: Tensor, sampled_tokens: int) -> Tensor:
    """Aggregation `token`: the sum of `per_token` (0 outside the mask) over the sampled tokens of the GLOBAL batch.

    `sampled_tokens` counts all micro-batches and ranks of the optimizer step (DAPO, section 3.3), so that the
    losses of the parts add up to the loss of the whole. Ranks that *average* their gradients multiply by their
    number.
    """
    if sampled_tokens < 1:
        raise ValueError(f"sampled_tokens is {sampled_tokens}: a batch without sampled tokens has no loss")
    return per_token.sum() / sampled_tokens


def truncated_importance_weights(
    old_logprobs: Tensor, rollout_logprobs: Tensor, loss_mask: Tensor, *, cap: float
) -> Tensor:
    """TIS: min(exp(old_logprobs - rollout_logprobs), cap), without gradient, 1 outside the mask (cap 2 by default
    in verl). It corrects for tokens sampled by an engine that differs from the trainer, in rounding or in version.
    """
    if cap <= 0:
        raise ValueError(f"cap is {cap}: it must be positive")
    return _limited_difference(old_logprobs, rollout_logprobs, loss_mask).exp().clamp(max=cap).detach()


def logprob_gap(old_logprobs: Tensor, rollout_logprobs: Tensor, loss_mask: Tensor) -> LogprobGap:
    """The gap between trainer and engine over sampled tokens; 0 throughout for an empty mask."""
    difference = torch.where(loss_mask, old_logprobs - rollout_logprobs, 0.0).detach()
    absolute = difference.abs()
    return LogprobGap(
        absolute_sum=absolute.sum(),
        absolute_max=absolute.max() if absolute.numel() else absolute.sum(),
        kl=_k3(difference.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)).sum(),
    )


def _limited_difference(logprobs: Tensor, reference_logprobs: Tensor, loss_mask: Tensor) -> Tensor:
    """`logprobs - reference_logprobs` within +-`LOG_RATIO_LIMIT`, 0 outside the mask."""
    difference = torch.where(loss_mask, logprobs - reference_logprobs, 0.0)
    return difference.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def _k3(log_ratio: Tensor) -> Tensor:
    """Schulman's k3 estimate of the KL divergence from the sampling distribution: e^x - x - 1 >= 0."""
    return torch.expm1(log_ratio) - log_ratio
