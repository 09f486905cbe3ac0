"""Policy losses, token by token. Only `logprobs` carries a gradient.

The importance ratio of a token is exp(logprobs - old_logprobs).
"""

from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Protocol, Self

from pydantic import Field

from torl.base.guard import InvalidResultError, describe
from torl.base.options import NonNegativeFloat
from torl.components.algorithms.losses.divergence import clamped_log_ratio, k3
from torl.components.algorithms.requirements import requires

if TYPE_CHECKING:
    from torch import Tensor


def sequence_sums(values: "Tensor", sequences: "Tensor") -> "Tensor":
    """Return the sum of `values` over the sequence of each token."""
    count = int(sequences.max()) + 1 if sequences.numel() else 0
    sums = values.new_zeros(count).index_add(0, sequences.flatten(), values.flatten())
    return sums[sequences]


def sequence_means(values: "Tensor", loss_mask: "Tensor", sequences: "Tensor") -> "Tensor":
    """Return the mean of `values`, which are 0 outside the mask, over the sampled tokens of each token's sequence."""
    counts = sequence_sums(loss_mask.to(values.dtype), sequences)
    return sequence_sums(values, sequences) / counts.clamp(min=1)


DualClip = Annotated[float, Field(gt=1)]


@dataclass(frozen=True, slots=True)
class LossInputs:
    """The inputs of a policy loss: tensors of the same shape.

    Attributes:
        logprobs: Log-probabilities under the current weights, with gradient.
        old_logprobs: Log-probabilities under the weights before the first update of the step.
        advantages: Advantage of each token.
        loss_mask: True for sampled tokens (bool). The other tensors are ignored elsewhere.
        sequences: Index of each token's sequence, from 0 (int64).
        rollout_logprobs: Log-probabilities according to the engine that sampled, perhaps with older weights.
        entropies: Entropy of the policy under the current weights, without gradient.
        ref_logprobs: Log-probabilities according to the reference model. None if nothing requires it.
        batch_values: Values of the function in `@requires(batch_values=...)`. None for a loss without it.
    """

    logprobs: "Tensor"
    old_logprobs: "Tensor"
    advantages: "Tensor"
    loss_mask: "Tensor"
    sequences: "Tensor"
    rollout_logprobs: "Tensor"
    entropies: "Tensor"
    ref_logprobs: "Tensor | None" = None
    batch_values: "Tensor | None" = None

    def log_ratio(self) -> "Tensor":
        """Return the log of the importance ratio, clamped to +-20, 0 outside the mask, with gradient."""
        return self.log_ratio_to(self.old_logprobs)

    def log_ratio_to(self, other_logprobs: "Tensor") -> "Tensor":
        """Return `logprobs` minus others, such as the engine's, clamped to +-20, 0 outside the mask, with gradient."""
        return clamped_log_ratio(self.logprobs, other_logprobs.detach(), self.loss_mask)

    def masked_advantages(self) -> "Tensor":
        """Return the advantages, 0 outside the mask, without gradient."""
        return self.advantages.masked_fill(~self.loss_mask, 0.0).detach()


@dataclass(frozen=True, slots=True)
class PolicyLossValues:
    """A policy loss, and sums that describe the update, to be divided by the number of sampled tokens.

    Attributes:
        per_token: Loss of each token, with gradient; 0 outside the mask. Has the shape of the inputs.
        clipped_tokens: Number of tokens whose gradient is removed by clipping, or whose weight is clipped (CISPO).
            Scalar.
        dual_clipped_tokens: Number of tokens whose gradient is removed by the dual clip. Scalar.
        approximate_kl: Sum over sampled tokens of the k3 estimate of KL(old || current), which is not negative. Scalar.
        clipped: Tokens (bool) that either count includes. None for a loss without clipping.
    """

    per_token: "Tensor"
    clipped_tokens: "Tensor"
    dual_clipped_tokens: "Tensor"
    approximate_kl: "Tensor"
    clipped: "Tensor | None" = None

    @classmethod
    def from_per_token(
        cls,
        inputs: LossInputs,
        per_token: "Tensor",
        clipped: "Tensor | None" = None,
        dual_clipped: "Tensor | None" = None,
    ) -> Self:
        """Create the result from the loss of each token.

        Args:
            inputs: Inputs of the loss.
            per_token: Loss of each token. Values outside the mask are ignored.
            clipped: Tokens (bool) that are clipped. None for a loss without clipping.
            dual_clipped: Tokens (bool) that are clipped by the dual clip. None for a loss without it.
        """
        no_tokens = inputs.loss_mask & ~inputs.loss_mask
        masks = [mask & inputs.loss_mask for mask in (clipped, dual_clipped) if mask is not None]
        return cls(
            per_token=per_token.masked_fill(~inputs.loss_mask, 0.0),
            clipped_tokens=(no_tokens if clipped is None else clipped & inputs.loss_mask).sum(),
            dual_clipped_tokens=(no_tokens if dual_clipped is None else dual_clipped & inputs.loss_mask).sum(),
            approximate_kl=k3(inputs.log_ratio().detach()).sum(),
            clipped=reduce(or_, masks) if masks else None,
        )

    def without(self, inputs: LossInputs, dropped: "Tensor") -> Self:
        """Return the loss without some tokens (bool), which count as clipped in addition to those that are."""
        clipped = dropped if self.clipped is None else dropped | self.clipped
        return self.from_per_token(inputs, self.per_token.masked_fill(dropped, 0.0), clipped)


def check_policy_loss(loss: object, inputs: LossInputs) -> None:
    """Check the result of a policy loss.

    Raises:
        InvalidResultError: `loss` is not a `PolicyLossValues` with one finite value for each token.
    """
    if not isinstance(loss, PolicyLossValues):
        raise InvalidResultError(
            f"expected PolicyLossValues, such as of PolicyLossValues.from_per_token; got {describe(loss)}"
        )
    check_token_values("per_token", loss.per_token, inputs.logprobs)


def check_token_values(name: str, values: Any, logprobs: "Tensor") -> None:
    """Check that `values` is a tensor with one value for each of `logprobs`, finite if these are.

    Raises:
        InvalidResultError: The type, the shape or a value is wrong.
    """
    if not hasattr(values, "is_floating_point") or not values.is_floating_point():
        raise InvalidResultError(f"expected {name} as a tensor of floats, got {describe(values)}")
    if values.shape != logprobs.shape:
        raise InvalidResultError(f"expected {name} of shape {tuple(logprobs.shape)}, got {tuple(values.shape)}")
    if not values.isfinite().all() and logprobs.isfinite().all():
        raise InvalidResultError(f"{name} must be finite, got {int((~values.isfinite()).sum())} other values")


class PolicyLoss(Protocol):
    '''A policy loss: a function of `LossInputs` and its own options that returns `PolicyLossValues`.

    Example: a loss that penalizes the squared distance of the importance ratio from 1 instead of clipping it.

        from torl import LossInputs, NonNegativeFloat, PolicyLossValues, requires

        @requires(all_tokens="pull")
        def tethered(inputs: LossInputs, pull: NonNegativeFloat = 1.0) -> PolicyLossValues:
            """-ratio * A + pull * (ratio - 1)^2 / 2."""
            ratio = inputs.log_ratio().exp()
            per_token = -ratio * inputs.masked_advantages() + pull * (ratio - 1).square() / 2
            return PolicyLossValues.from_per_token(inputs, per_token)

        [algorithm.policy_loss]
        name = "my_package.losses:tethered"
        pull = 0.5

    The loss of a token may depend on all tokens of its sequence (`inputs.sequences`), which are always in one call, but
    not on other sequences. Numbers that depend on the whole batch come from `@requires(batch_values=...)`
    (`torl.components.algorithms.requirements`), which also declares that a loss requires the reference model, or has a
    term for tokens without an advantage.
    '''

    def __call__(self, inputs: LossInputs, /) -> PolicyLossValues:
        """Compute the loss, with the options already bound."""
        ...


def clipped_policy_loss(
    inputs: LossInputs,
    *,
    clip_low: NonNegativeFloat = 0.2,
    clip_high: NonNegativeFloat = 0.2,
    dual_clip: DualClip | None = None,
) -> PolicyLossValues:
    """PPO's clipped loss: -min(ratio * A, clip(ratio, 1 - clip_low, 1 + clip_high) * A) (arXiv 1707.06347, equation 7).

    `clip_high > clip_low` is DAPO's clip-higher (arXiv 2503.14476, section 3.1). With `dual_clip` = c, the loss of a
    token with A < 0 is at most c * |A| (Ye et al. 2020, arXiv 1912.09729, equation 5; c = 3 there).

    Args:
        inputs: Inputs of the loss.
        clip_low: Lower clip range of the importance ratio, which is clipped at `1 - clip_low`.
        clip_high: Upper clip range of the importance ratio, which is clipped at `1 + clip_high`.
        dual_clip: Dual-clip bound for tokens with a negative advantage, as a multiple of |A|. Unset disables it.

    Raises:
        ValueError: `dual_clip` is 1 or less.
    """
    return _clipped(inputs, inputs.log_ratio(), clip_low, clip_high, dual_clip)


@requires(aggregations=["sequence", "fixed_length"])  # the latter is LUSPO
def gspo_policy_loss(
    inputs: LossInputs, *, clip_low: NonNegativeFloat = 3e-4, clip_high: NonNegativeFloat = 4e-4
) -> PolicyLossValues:
    """GSPO (arXiv 2507.18071): the clipped loss with a sequence-level importance ratio, exp(mean log ratio).

    This is GSPO-token (equation 13): the loss of a token has the value of its sequence's ratio and the gradient of its
    own log-probability, so that advantages and weights may differ within a sequence. If they do not, value and gradient
    are those of equation 5 under the aggregation `sequence`. The clip ranges are those of the paper, much narrower than
    for token-level ratios.

    LUSPO (arXiv 2602.05261) is this loss with the aggregation `fixed_length` of length 1: sums over sequences.

    Args:
        inputs: Inputs of the loss.
        clip_low: Lower clip range of the importance ratio, which is clipped at `1 - clip_low`.
        clip_high: Upper clip range of the importance ratio, which is clipped at `1 + clip_high`.
    """
    token_log_ratio = inputs.log_ratio()
    sequence_log_ratio = sequence_means(token_log_ratio.detach(), inputs.loss_mask, inputs.sequences)
    log_ratio = sequence_log_ratio.masked_fill(~inputs.loss_mask, 0.0) + token_log_ratio - token_log_ratio.detach()
    return _clipped(inputs, log_ratio, clip_low, clip_high, None)


def cispo_policy_loss(
    inputs: LossInputs, *, clip_low: NonNegativeFloat = 0.2, clip_high: NonNegativeFloat = 0.2
) -> PolicyLossValues:
    """CISPO (arXiv 2506.13585, equation 4): -clip(ratio, 1 - clip_low, 1 + clip_high) * A * logprob.

    The clipped ratio has no gradient, so that clipping removes no token's gradient. The paper has no lower bound, which
    a `clip_low` of 1 or more gives.

    Args:
        inputs: Inputs of the loss.
        clip_low: Lower clip range of the importance ratio, which is clipped at `1 - clip_low`.
        clip_high: Upper clip range of the importance ratio, which is clipped at `1 + clip_high`.
    """
    ratio = inputs.log_ratio().detach().exp()
    weight = ratio.clamp(1 - clip_low, 1 + clip_high)
    per_token = -(weight * inputs.masked_advantages()) * inputs.logprobs.masked_fill(~inputs.loss_mask, 0.0)
    return PolicyLossValues.from_per_token(inputs, per_token, clipped=weight != ratio)


def reinforce_policy_loss(inputs: LossInputs) -> PolicyLossValues:
    """REINFORCE without importance ratio and clipping: -A * logprob. Only the first update of a step is on-policy."""
    per_token = -inputs.masked_advantages() * inputs.logprobs.masked_fill(~inputs.loss_mask, 0.0)
    return PolicyLossValues.from_per_token(inputs, per_token)


def _clipped(
    inputs: LossInputs, log_ratio: "Tensor", clip_low: float, clip_high: float, dual_clip: float | None
) -> PolicyLossValues:
    if dual_clip is not None and dual_clip <= 1:
        raise ValueError(f"dual_clip = {dual_clip} must be greater than 1")
    ratio = log_ratio.exp()
    advantages = inputs.masked_advantages()
    unclipped = -ratio * advantages
    clipped = -ratio.clamp(1 - clip_low, 1 + clip_high) * advantages
    per_token = unclipped.maximum(clipped)
    is_dual_clipped = None
    if dual_clip is not None:
        ceiling = -dual_clip * advantages
        is_dual_clipped = (advantages < 0) & (per_token > ceiling)
        per_token = ceiling.where(is_dual_clipped, per_token)
    return PolicyLossValues.from_per_token(inputs, per_token, clipped > unclipped, is_dual_clipped)
