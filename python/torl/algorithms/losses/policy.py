"""Policy losses: what a token adds to the loss of an update. Gradients flow through `logprobs` only."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Protocol, Self

from pydantic import Field

from torl.algorithms.losses.divergence import clamped_log_ratio, k3
from torl.algorithms.losses.sequences import sequence_means
from torl.options import NonNegativeFloat

if TYPE_CHECKING:
    from torch import Tensor

DualClip = Annotated[float, Field(gt=1)]


@dataclass(frozen=True, slots=True)
class LossInputs:
    """What a policy loss looks at: tensors of one shape."""

    logprobs: "Tensor"  # under the weights that are being trained; carries the gradient
    old_logprobs: "Tensor"  # under the weights before the first update of the step
    advantages: "Tensor"
    loss_mask: "Tensor"  # bool; nothing else matters where it is False
    sequences: "Tensor"  # int64: numbers the sequence of each token from 0

    def log_ratio(self) -> "Tensor":
        """logprobs - old_logprobs within +-20, 0 outside the mask; the gradient is that of `logprobs`."""
        return clamped_log_ratio(self.logprobs, self.old_logprobs.detach(), self.loss_mask)

    def masked_advantages(self) -> "Tensor":
        """The advantages, 0 outside the mask."""
        return self.advantages.masked_fill(~self.loss_mask, 0.0).detach()


@dataclass(frozen=True, slots=True)
class PolicyLossValues:
    """A policy loss token by token, and sums that describe the update (divide by the sampled tokens)."""

    per_token: "Tensor"  # shape of the inputs, 0 outside the mask; carries the gradient
    clipped_tokens: "Tensor"  # scalar: tokens on which the clip took the gradient away (CISPO: changed its weight)
    dual_clipped_tokens: "Tensor"  # scalar: tokens on which the dual clip did
    approximate_kl: "Tensor"  # scalar: sum of k3, an estimate of KL(old || current), never negative

    @classmethod
    def from_per_token(
        cls,
        inputs: LossInputs,
        per_token: "Tensor",
        clipped: "Tensor | None" = None,
        dual_clipped: "Tensor | None" = None,
    ) -> Self:
        """The values from the loss of each token and, where there is a clip, the tokens (bool) on which it held."""
        nowhere = inputs.loss_mask & ~inputs.loss_mask
        return cls(
            per_token=per_token.masked_fill(~inputs.loss_mask, 0.0),
            clipped_tokens=(nowhere if clipped is None else clipped & inputs.loss_mask).sum(),
            dual_clipped_tokens=(nowhere if dual_clipped is None else dual_clipped & inputs.loss_mask).sum(),
            approximate_kl=k3(inputs.log_ratio().detach()).sum(),
        )


class PolicyLoss(Protocol):
    '''The loss of each token of a batch: a function of `LossInputs`, then of its own options.

    A whole one, which pulls the ratio back toward 1 instead of clipping it:

        from torl.algorithms.losses import LossInputs, PolicyLossValues
        from torl.options import NonNegativeFloat

        def tethered(inputs: LossInputs, pull: NonNegativeFloat = 1.0) -> PolicyLossValues:
            """-ratio * A + pull * (ratio - 1)^2 / 2."""
            ratio = inputs.log_ratio().exp()
            per_token = -ratio * inputs.masked_advantages() + pull * (ratio - 1).square() / 2
            return PolicyLossValues.from_per_token(inputs, per_token)

        [algorithm.policy_loss]
        name = "my_package.losses:tethered"
        pull = 0.5

    It may look at all tokens of a sequence (`inputs.sequences`), which are always in one call, and at no other.
    '''

    def __call__(self, inputs: LossInputs, /) -> PolicyLossValues:
        """The loss, once the options are bound."""
        ...


def clipped_policy_loss(
    inputs: LossInputs,
    *,
    clip_low: NonNegativeFloat = 0.2,
    clip_high: NonNegativeFloat = 0.2,
    dual_clip: DualClip | None = None,
) -> PolicyLossValues:
    """PPO's clipped loss, token by token: -min(ratio * A, clip(ratio, 1 - clip_low, 1 + clip_high) * A).

    ratio = exp(logprobs - old_logprobs), the difference limited to +-20. `clip_high > clip_low` is DAPO's
    clip-higher. With `dual_clip` = c > 1 the loss of a token with A < 0 is at most c * |A| (Ye et al. 2020,
    equation 5; c = 3 in algorithms that use it).

    Args:
        inputs: of the tokens.
        clip_low: How far below 1 the ratio has an effect.
        clip_high: How far above 1.
        dual_clip: Bound on the loss of a token with a negative advantage, in multiples of it; none when unset.

    Raises:
        ValueError: `dual_clip` is 1 or less.
    """
    return _clipped(inputs, inputs.log_ratio(), clip_low, clip_high, dual_clip)


def gspo_policy_loss(
    inputs: LossInputs, *, clip_low: NonNegativeFloat = 0.2, clip_high: NonNegativeFloat = 0.2
) -> PolicyLossValues:
    """GSPO (arXiv 2507.18071): the clipped loss of one ratio for each sequence, exp(mean log ratio).

    This is the paper's GSPO-token (equation 13): each token's loss has the value of its sequence's ratio and the
    gradient of its own logprob, which makes sense of advantages and weights that differ within a sequence. Where they
    do not, value and gradient are those of equation 5 under aggregation `sequence`. The clip range is far narrower than
    a token's (the paper's: 3e-4 and 4e-4).

    Args:
        inputs: of the tokens.
        clip_low: How far below 1 the ratio has an effect.
        clip_high: How far above 1.
    """
    of_token = inputs.log_ratio()
    of_sequence = sequence_means(of_token.detach(), inputs.loss_mask, inputs.sequences)
    log_ratio = of_sequence.masked_fill(~inputs.loss_mask, 0.0) + of_token - of_token.detach()
    return _clipped(inputs, log_ratio, clip_low, clip_high, None)


def cispo_policy_loss(
    inputs: LossInputs, *, clip_low: NonNegativeFloat = 0.2, clip_high: NonNegativeFloat = 0.2
) -> PolicyLossValues:
    """CISPO (arXiv 2506.13585, equation 4): -clip(ratio, 1 - clip_low, 1 + clip_high) * A * logprob.

    The clipped ratio carries no gradient, so that no token loses its own. The paper leaves the lower end open:
    `clip_low` of 1 or more.

    Args:
        inputs: of the tokens.
        clip_low: How far below 1 the ratio has an effect.
        clip_high: How far above 1.
    """
    ratio = inputs.log_ratio().detach().exp()
    weight = ratio.clamp(1 - clip_low, 1 + clip_high)
    per_token = -(weight * inputs.masked_advantages()) * inputs.logprobs.masked_fill(~inputs.loss_mask, 0.0)
    return PolicyLossValues.from_per_token(inputs, per_token, clipped=weight != ratio)


def reinforce_policy_loss(inputs: LossInputs) -> PolicyLossValues:
    """REINFORCE without ratio or clip: -A * logprob. Only the first update of a step is on its own policy's samples."""
    per_token = -inputs.masked_advantages() * inputs.logprobs.masked_fill(~inputs.loss_mask, 0.0)
    return PolicyLossValues.from_per_token(inputs, per_token)


POLICY_LOSSES: Mapping[str, Callable[..., PolicyLossValues]] = MappingProxyType(
    {
        "clipped": clipped_policy_loss,
        "gspo": gspo_policy_loss,
        "cispo": cispo_policy_loss,
        "reinforce": reinforce_policy_loss,
    }
)
"""The policy losses that a configuration knows by name."""


def _clipped(
    inputs: LossInputs, log_ratio: "Tensor", clip_low: float, clip_high: float, dual_clip: float | None
) -> PolicyLossValues:
    if dual_clip is not None and dual_clip <= 1:
        raise ValueError(f"dual_clip is {dual_clip}: it must be greater than 1")
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
