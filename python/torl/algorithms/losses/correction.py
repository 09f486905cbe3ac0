"""What a token's loss is multiplied by because the engine that sampled it differs from the trainer.

With w = exp(old_logprobs - rollout_logprobs). Weights carry no gradient and are 1 outside the mask. A token with weight
0 still counts in what the loss is divided by.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, Self

from pydantic import model_validator

from torl.algorithms.losses.divergence import LOG_RATIO_LIMIT, clamped_log_ratio
from torl.algorithms.losses.policy import check_token_values
from torl.algorithms.losses.sequences import sequence_sums
from torl.options import NonNegativeFloat, PositiveFloat, Section

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class CorrectionInputs:
    """What a correction looks at: tensors of one shape."""

    old_logprobs: "Tensor"  # the trainer's, of the weights that sampled
    rollout_logprobs: "Tensor"  # the engine's own
    loss_mask: "Tensor"  # bool
    sequences: "Tensor"  # int64: numbers the sequence of each token from 0

    def log_weights(self) -> "Tensor":
        """log w within +-20, 0 outside the mask, without gradient."""
        return clamped_log_ratio(self.old_logprobs, self.rollout_logprobs, self.loss_mask).detach()


class ImportanceCorrection(Protocol):
    '''The weight of each token's loss: a function of `CorrectionInputs`, then of its own options.

    A whole one, which keeps weights within a range instead of masking what lies outside:

        from torl.algorithms.losses import CorrectionInputs
        from torl.options import PositiveFloat

        def clamped(inputs: CorrectionInputs, factor: PositiveFloat = 2.0) -> "Tensor":
            """w, but at most `factor` and at least 1 / `factor`."""
            return inputs.log_weights().exp().clamp(1 / factor, factor)

        [algorithm.importance_correction]
        name = "my_package.corrections:clamped"
        factor = 1.5
    '''

    def __call__(self, inputs: CorrectionInputs, /) -> "Tensor":
        """The weights, of the inputs' shape, once the options are bound."""
        ...


def check_correction(weights: object, inputs: CorrectionInputs) -> None:
    """Check the result of an importance correction.

    Raises:
        InvalidResultError: `weights` is not a tensor with one finite weight for each token.
    """
    check_token_values("weights", weights, inputs.old_logprobs)


class Bounds(Section):
    """Between which weights are kept."""

    low: NonNegativeFloat
    """Weights below this are masked."""
    high: PositiveFloat
    """Weights above this are masked."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.high < self.low:
            raise ValueError(f"low = {self.low:g} must not be more than high = {self.high:g}")
        return self


class IcepopBounds(Bounds):
    """Options of `icepop`: the paper's bounds."""

    low: NonNegativeFloat = 0.5
    """Tokens with a weight below this are masked."""
    high: PositiveFloat = 5.0
    """Tokens with a weight above this are masked."""


class MisBounds(Bounds):
    """Options of `mis`."""

    low: NonNegativeFloat = 0.0
    """Sequences with a weight below this are masked."""
    high: PositiveFloat = 3.0
    """Sequences with a weight above this are masked."""


def tis(inputs: CorrectionInputs, *, high: PositiveFloat = 2.0) -> "Tensor":
    """min(w, high): truncated importance sampling.

    Args:
        inputs: of the tokens.
        high: Weights above this are cut to it.
    """
    return inputs.log_weights().exp().clamp(max=high)


def icepop(inputs: CorrectionInputs, options: IcepopBounds) -> "Tensor":
    """w where low <= w <= high, else 0 (arXiv 2510.18855)."""
    return _within(inputs, inputs.log_weights(), options)


def mis(inputs: CorrectionInputs, options: MisBounds) -> "Tensor":
    """The product of w over the whole sequence where that is within [low, high], else 0 for all of it."""
    totals = sequence_sums(inputs.log_weights(), inputs.sequences).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    return _within(inputs, totals.masked_fill(~inputs.loss_mask, 0.0), options)


def _within(inputs: CorrectionInputs, log_weights: "Tensor", bounds: Bounds) -> "Tensor":
    weights = log_weights.exp()
    outside = (weights < bounds.low) | (weights > bounds.high)
    return weights.masked_fill(inputs.loss_mask & outside, 0.0)


CORRECTIONS: Mapping[str, Callable[..., Any]] = MappingProxyType({"tis": tis, "icepop": icepop, "mis": mis})
"""The corrections that a configuration knows by name."""
