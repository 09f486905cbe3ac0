"""Policy losses that drop tokens or sequences outside a trust region: DPPO, and DeepSeek-V3.2's sequence mask."""

from typing import TYPE_CHECKING, Literal

from torl.base.options import NonNegativeFloat, PositiveFloat
from torl.components.algorithms.losses.policy import LossInputs, PolicyLossValues, clipped_policy_loss, sequence_means
from torl.components.algorithms.requirements import requires

if TYPE_CHECKING:
    from torch import Tensor

_EPSILON = 1e-8  # as in the published code, for probabilities of 1
_MAX_RATIO = 20.0  # bounds the weight of one token; the divergence drops most tokens long before


@requires(engine_ratio=True, all_tokens="penalty")
def dppo_policy_loss(
    inputs: LossInputs,
    *,
    divergence: Literal["tv", "kl"] = "tv",
    clip_low: NonNegativeFloat = 0.2,
    clip_high: NonNegativeFloat = 0.2,
    penalty: NonNegativeFloat = 0.0,
) -> PolicyLossValues:
    """DPPO (arXiv 2602.04879): -min(ratio, 20) * A * logprob where the binary divergence to the engine is small.

    The ratio, which has no gradient, and the divergence are to the *engine's* probability q of the token, so that the
    loss bounds a single on-policy update, too, and replaces `algorithm.importance_correction`. A token with A > 0 is
    dropped if its probability p rose too far, any other if it fell too far: by more than `clip_high` or `clip_low` in
    p - q ("tv"), or in the KL divergence of the binary distributions q and p ("kl").

    Args:
        inputs: Inputs of the loss.
        divergence: Divergence of the binary distributions of a token and all others.
        clip_low: Maximum divergence of tokens with an advantage of at most 0 that became less probable.
        clip_high: Maximum divergence of tokens with a positive advantage that became more probable.
        penalty: Coefficient of the squared log ratio, which is added to the loss of every token (prime-rl: 1e-3).
    """
    advantages, log_ratio = inputs.masked_advantages(), inputs.log_ratio_to(inputs.rollout_logprobs)
    engine = inputs.rollout_logprobs.masked_fill(~inputs.loss_mask, 0.0)
    current = inputs.logprobs.masked_fill(~inputs.loss_mask, 0.0)
    p, q = (each.exp().clamp(max=1.0) for each in (current.detach(), engine))  # rounding may exceed 1
    if divergence == "tv":
        rose, fell = p - q > clip_high, q - p > clip_low
    else:
        binary_kl = _binary_kl(q, p, engine - current.detach())
        rose, fell = (binary_kl > clip_high) & (p > q), (binary_kl > clip_low) & (p < q)
    dropped = rose.where(advantages > 0, fell)
    weight = log_ratio.detach().exp().clamp(max=_MAX_RATIO).masked_fill(dropped, 0.0)
    per_token = -weight * advantages * current
    if penalty:
        per_token = per_token + penalty * log_ratio.square()
    return PolicyLossValues.from_per_token(inputs, per_token, clipped=dropped)


def _binary_kl(q: "Tensor", p: "Tensor", log_ratio: "Tensor") -> "Tensor":
    """Return KL(q || p) of the distributions of a token and all others; `log_ratio` is log q - log p."""
    return q * log_ratio + (1 - q) * ((1 - q + _EPSILON) / (1 - p + _EPSILON)).log()


def sequence_masked_policy_loss(
    inputs: LossInputs,
    threshold: PositiveFloat,
    *,
    clip_low: NonNegativeFloat = 0.2,
    clip_high: NonNegativeFloat = 0.2,
) -> PolicyLossValues:
    """DeepSeek-V3.2 (arXiv 2512.02556, equation 9): the clipped loss without off-policy sequences that scored low.

    A token with A < 0 is dropped if the mean over its sequence of the engine's log-probability minus the current one is
    above `threshold`.

    Args:
        inputs: Inputs of the loss.
        threshold: Maximum mean log ratio of a sequence with a negative advantage, in nats. The paper gives no value.
        clip_low: Lower clip range of the importance ratio, which is clipped at `1 - clip_low`.
        clip_high: Upper clip range of the importance ratio, which is clipped at `1 + clip_high`.
    """
    loss = clipped_policy_loss(inputs, clip_low=clip_low, clip_high=clip_high)
    distance = (inputs.rollout_logprobs - inputs.logprobs.detach()).masked_fill(~inputs.loss_mask, 0.0)
    far = sequence_means(distance, inputs.loss_mask, inputs.sequences) > threshold
    return loss.without(inputs, far & (inputs.masked_advantages() < 0))
