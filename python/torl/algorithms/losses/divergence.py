"""How far two policies are apart, from the logprobs of sampled tokens alone."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, assert_never

if TYPE_CHECKING:
    from torch import Tensor

KlEstimator: TypeAlias = Literal["k1", "k2", "k3"]

# exp(20) is 5e8: far outside any trust region, and far from infinity even when multiplied and summed.
LOG_RATIO_LIMIT = 20.0


@dataclass(frozen=True, slots=True)
class LogprobGap:
    """How far the engine and the trainer are apart on the same weights, over sampled tokens. Scalars."""

    absolute_sum: "Tensor"  # sum of |old - rollout|
    absolute_max: "Tensor"
    kl: "Tensor"  # sum of k3, an estimate of KL(rollout || old), never negative


def kl_to_reference(
    logprobs: "Tensor", ref_logprobs: "Tensor", loss_mask: "Tensor", estimator: KlEstimator
) -> "Tensor":
    """An estimate of KL(policy || reference) on each token, from the sampled token alone; 0 outside the mask.

    With x = ref_logprobs - logprobs (limited to +-20): "k1" is -x, "k2" x^2 / 2, "k3" e^x - x - 1 (Schulman 2020).
    As a loss, k2 has the gradient of the KL divergence; k3 has nearly that close to the reference; the gradient of k1
    is 0 in expectation: it belongs in the reward.
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
    """The gap between trainer and engine over sampled tokens; 0 throughout for an empty mask."""
    difference = (old_logprobs - rollout_logprobs).masked_fill(~loss_mask, 0.0).detach()
    absolute = difference.abs()
    return LogprobGap(
        absolute_sum=absolute.sum(),
        absolute_max=absolute.max() if absolute.numel() else absolute.sum(),
        kl=k3(difference.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)).sum(),
    )


def clamped_log_ratio(logprobs: "Tensor", reference_logprobs: "Tensor", loss_mask: "Tensor") -> "Tensor":
    """`logprobs - reference_logprobs` within +-`LOG_RATIO_LIMIT`, 0 outside the mask."""
    difference = (logprobs - reference_logprobs).masked_fill(~loss_mask, 0.0)
    return difference.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def k3(log_ratio: "Tensor") -> "Tensor":
    """Schulman's k3 estimate of the KL divergence from the sampling distribution: e^x - x - 1 >= 0."""
    return log_ratio.expm1() - log_ratio
