"""Importance corrections: weights of token losses for the mismatch between the engine that sampled and the trainer.

The importance ratio of a token is w = exp(old_logprobs - rollout_logprobs). Weights have no gradient and are 1 outside
the mask. A token with weight 0 still counts in the aggregation.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, Self

from pydantic import model_validator

from torl.algorithms.losses.divergence import LOG_RATIO_LIMIT, clamped_log_ratio
from torl.algorithms.losses.policy import check_token_values, sequence_sums
from torl.options import NonNegativeFloat, PositiveFloat, Section

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class CorrectionInputs:
    """The inputs of an importance correction: tensors of the same shape.

    Attributes:
        old_logprobs: The trainer's log-probabilities under the weights that sampled.
        rollout_logprobs: The engine's log-probabilities.
        loss_mask: True for sampled tokens (bool).
        sequences: Index of each token's sequence, from 0 (int64).
    """

    old_logprobs: "Tensor"
    rollout_logprobs: "Tensor"
    loss_mask: "Tensor"
    sequences: "Tensor"

    def log_weights(self) -> "Tensor":
        """Return log w, clamped to +-20, 0 outside the mask, without gradient."""
        return clamped_log_ratio(self.old_logprobs, self.rollout_logprobs, self.loss_mask).detach()


class ImportanceCorrection(Protocol):
    '''An importance correction: a function of `CorrectionInputs` and its own options that returns token weights.

    Example: a correction that clamps weights to a range.

        from torl import CorrectionInputs, PositiveFloat

        def clamped(inputs: CorrectionInputs, factor: PositiveFloat = 2.0) -> "Tensor":
            """clamp(w, 1 / factor, factor)."""
            return inputs.log_weights().exp().clamp(1 / factor, factor)

        [algorithm.importance_correction]
        name = "my_package.corrections:clamped"
        factor = 1.5
    '''

    def __call__(self, inputs: CorrectionInputs, /) -> "Tensor":
        """Compute the weights, of the inputs' shape, with the options already bound."""
        ...


def check_correction(weights: object, inputs: CorrectionInputs) -> None:
    """Check the result of an importance correction.

    Raises:
        InvalidResultError: `weights` is not a tensor with one finite weight for each token.
    """
    check_token_values("weights", weights, inputs.old_logprobs)


class Bounds(Section):
    """The range of weights that are not masked."""

    low: NonNegativeFloat
    """Lower bound. Weights below it are masked."""
    high: PositiveFloat
    """Upper bound. Weights above it are masked."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.high < self.low:
            raise ValueError(f"low = {self.low:g} must not be more than high = {self.high:g}")
        return self


class IcepopBounds(Bounds):
    """Options of `icepop`, with the paper's bounds as defaults."""

    low: NonNegativeFloat = 0.5
    """Lower bound of the importance ratio. Tokens below it are masked."""
    high: PositiveFloat = 5.0
    """Upper bound of the importance ratio. Tokens above it are masked."""


class MisBounds(Bounds):
    """Options of `mis`."""

    low: NonNegativeFloat = 0.0
    """Lower bound of a sequence's importance ratio. Sequences below it are masked."""
    high: PositiveFloat = 3.0
    """Upper bound of a sequence's importance ratio. Sequences above it are masked."""


def tis(inputs: CorrectionInputs, *, high: PositiveFloat = 2.0) -> "Tensor":
    """min(w, high): truncated importance sampling.

    Args:
        inputs: Inputs of the correction.
        high: Upper bound at which the importance ratio is truncated.
    """
    return inputs.log_weights().exp().clamp(max=high)


def icepop(inputs: CorrectionInputs, options: IcepopBounds) -> "Tensor":
    """w if low <= w <= high, else 0 (IcePop, arXiv 2510.18855)."""
    return _within(inputs, inputs.log_weights(), options)


def mis(inputs: CorrectionInputs, options: MisBounds) -> "Tensor":
    """The product of w over the sequence if it is within [low, high], else 0: masked importance sampling."""
    totals = sequence_sums(inputs.log_weights(), inputs.sequences).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    return _within(inputs, totals.masked_fill(~inputs.loss_mask, 0.0), options)


def _within(inputs: CorrectionInputs, log_weights: "Tensor", bounds: Bounds) -> "Tensor":
    weights = log_weights.exp()
    outside = (weights < bounds.low) | (weights > bounds.high)
    return weights.masked_fill(inputs.loss_mask & outside, 0.0)


CORRECTIONS: Mapping[str, Callable[..., Any]] = MappingProxyType({"tis": tis, "icepop": icepop, "mis": mis})
"""Built-in importance corrections by their names in configurations."""
