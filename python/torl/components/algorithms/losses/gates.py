"""Policy losses that weigh tokens smoothly instead of clipping them: SAPO, VESPO and GMPO."""

from torl.base.options import NonNegativeFloat, PositiveFloat
from torl.components.algorithms.losses.policy import LossInputs, PolicyLossValues, sequence_means, sequence_sums
from torl.components.algorithms.requirements import requires

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
