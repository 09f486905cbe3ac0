"""Estimates of the divergence of two policies from the log-probabilities of sampled tokens."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, assert_never

if TYPE_CHECKING:
    from torch import Tensor

KlEstimator: TypeAlias = Literal["k1", "k2", "k3"]
"""Name of a KL estimator; see `kl_to_reference`."""

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


def kl_to_reference(
    logprobs: "Tensor", ref_logprobs: "Tensor", loss_mask: "Tensor", estimator: KlEstimator
) -> "Tensor":
    """Estimate KL(policy || reference) at each sampled token; 0 outside the mask.

    With x = ref_logprobs - logprobs, clamped to +-20: k1 = -x, k2 = x^2 / 2, k3 = e^x - x - 1 (Schulman 2020,
    "Approximating KL divergence"). As a loss, k2 has the gradient of the KL divergence in expectation, and k3
    approximately so near the reference model. The gradient of k1 is 0 in expectation: use it in the reward.
    """
    x = clamped_log_ratio(ref_logprobs.detach(), logprobs, loss_mask)
    if estimator == "k1":
        return -x
    if estimator == "k2":
        return x.square() / 2
    if estimator == "k3":
        return k3(x)
    assert_never(estimator)


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
