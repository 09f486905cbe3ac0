"""Policy losses with other trust regions than a clipped ratio.

SAPO, VESPO and GMPO weigh tokens smoothly; DPPO and DeepSeek-V3.2's sequence mask drop tokens or sequences.
"""

from typing import TYPE_CHECKING, Literal

from torl.base.options import NonNegativeFloat, PositiveFloat
from torl.components.algorithms.losses.policy import LossInputs, PolicyLossValues, clipped_policy_loss, sequence_means
from torl.components.algorithms.requirements import requires

if TYPE_CHECKING:
    from torch import Tensor

from torl.components.algorithms.losses.policy import sequence_sums

_MIN_LOG_WEIGHT, _MAX_LOG_WEIGHT = -18.420680743952367, 20.0  # the former is log(1e-8), as in VESPO's code


@requires(aggregations=["sequence"])
def sapo_policy_loss(
    inputs: LossInputs, *, temperatures: tuple[PositiveFloat, PositiveFloat] = (1.0, 1.05)
) -> PolicyLossValues:
    """SAPO (arXiv 2511.20347, equation 5): -A * 4 / t * sigmoid(t * (ratio - 1)), a soft gate around the ratio 1.

    Args:
        inputs: Inputs of the loss.
        temperatures: Temperature t of tokens with a positive advantage, and of all others. A higher one reduces weights
            faster with distance.
    """
    positive, other = temperatures
    advantages, ratio = inputs.masked_advantages(), inputs.log_ratio().exp()
    temperature = (advantages > 0).to(advantages.dtype) * (positive - other) + other
    gate = (temperature * (ratio - 1)).sigmoid() * (4 / temperature)
    return PolicyLossValues.from_per_token(inputs, -gate * advantages)


@requires(engine_ratio=True)
def vespo_policy_loss(
    inputs: LossInputs,
    *,
    positive: tuple[PositiveFloat, PositiveFloat] = (2.0, 3.0),
    negative: tuple[PositiveFloat, PositiveFloat] = (3.0, 2.0),
) -> PolicyLossValues:
    """VESPO (arXiv 2602.10693): -phi(W) * A * logprob, phi(W) = e^d * W^p * e^(-d W), without gradient through phi.

    W is the product over the sequence of the ratio to the *engine's* log-probabilities, with its logarithm clamped to
    [log 1e-8, 20]. It includes the mismatch of engine and trainer, and replaces `algorithm.importance_correction`.
    phi is 1 at W = 1, and largest at W = p / d. Over long sequences it vanishes: at 3,000 tokens, a constant gap of
    0.001 nats to the engine leaves 5e-23 of the loss (W = e^3) or 0.04 (W = e^-3).

    Args:
        inputs: Inputs of the loss.
        positive: Exponent p and rate d of tokens with an advantage of at least 0.
        negative: Exponent p and rate d of tokens with a negative advantage.
    """
    (power, decay), (negative_power, negative_decay) = positive, negative
    advantages = inputs.masked_advantages()
    log_ratio = inputs.log_ratio_to(inputs.rollout_logprobs).detach()
    log_weight = sequence_sums(log_ratio, inputs.sequences).clamp(_MIN_LOG_WEIGHT, _MAX_LOG_WEIGHT)
    is_negative = (advantages < 0).to(advantages.dtype)
    powers = is_negative * (negative_power - power) + power
    decays = is_negative * (negative_decay - decay) + decay
    phi = (decays + powers * log_weight - decays * log_weight.exp()).exp()
    per_token = -phi * advantages * inputs.logprobs.masked_fill(~inputs.loss_mask, 0.0)
    return PolicyLossValues.from_per_token(inputs, per_token)


@requires(aggregations=["sequence"])
def gmpo_policy_loss(
    inputs: LossInputs, *, clip_low: NonNegativeFloat = 0.4, clip_high: NonNegativeFloat = 0.4
) -> PolicyLossValues:
    """GMPO (arXiv 2507.20673, equation 4): -A * the geometric mean of the clipped ratios of the sequence.

    Log ratios are clipped to [-clip_low, clip_high] where that lowers the objective. The published loss is that of the
    aggregation `sequence` with an advantage that is constant in the sequence; turn-level advantages are not published.

    Args:
        inputs: Inputs of the loss.
        clip_low: Lower clip range of a token's log ratio.
        clip_high: Upper clip range of a token's log ratio.
    """
    advantages, log_ratio = inputs.masked_advantages(), inputs.log_ratio()
    clamped = log_ratio.clamp(-clip_low, clip_high)
    lower = (advantages.sign() * clamped < advantages.sign() * log_ratio).detach()
    limited = clamped.where(lower, log_ratio).masked_fill(~inputs.loss_mask, 0.0)
    ratio = sequence_means(limited, inputs.loss_mask, inputs.sequences).exp()
    return PolicyLossValues.from_per_token(inputs, -ratio * advantages, clipped=lower)


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
