"""Estimates of the divergence of two policies from the log-probabilities of sampled tokens."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

LOG_RATIO_LIMIT = 20.0
"""Limit of log ratios. exp(20) is 5e8: far outside any trust region, but finite after products and sums."""


@dataclass(frozen=True, slots=True)
class LogprobGap:
    """The difference between the log-probabilities of engine and trainer for the same weights. Scalars."""

    absolute_sum: "Tensor"
    """Sum of |old_logprobs - rollout_logprobs| over sampled tokens."""
    absolute_max: "Tensor"
    """Maximum of |old_logprobs - rollout_logprobs| over sampled tokens."""
    kl: "Tensor"
    """Sum over sampled tokens of the k3 estimate of KL(rollout || old), which is not negative."""


def logprob_gap(old_logprobs: "Tensor", rollout_logprobs: "Tensor", loss_mask: "Tensor") -> LogprobGap:
    """Compute the gap between trainer and engine over sampled tokens. It is 0 for an empty mask."""
    difference = (old_logprobs - rollout_logprobs).masked_fill(~loss_mask, 0.0).detach()
    absolute = difference.abs()
    return LogprobGap(
        absolute_sum=absolute.sum(),
        absolute_max=absolute.max() if absolute.numel() else absolute.sum(),
        kl=k3(difference.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)).sum(),
    )


def clamped_log_ratio(logprobs: "Tensor", reference_logprobs: "Tensor", loss_mask: "Tensor") -> "Tensor":
    """Return `logprobs - reference_logprobs`, clamped to +-`LOG_RATIO_LIMIT`, and 0 outside the mask."""
    difference = (logprobs - reference_logprobs).masked_fill(~loss_mask, 0.0)
    return difference.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def k3(log_ratio: "Tensor") -> "Tensor":
    """Return the k3 estimate of the KL divergence from the sampling distribution: e^x - x - 1 >= 0 (Schulman 2020)."""
    return log_ratio.expm1() - log_ratio
