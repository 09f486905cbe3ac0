"""Importance corrections: weights of token losses for the mismatch between the engine that sampled and the trainer.

The importance ratio of a token is w = exp(old_logprobs - rollout_logprobs). Weights have no gradient and are 1 outside
the mask. A token with weight 0 still counts in the aggregation.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, Self

from pydantic import model_validator

from torl.base.options import NonNegativeFloat, PositiveFloat, Section
from torl.components.algorithms.losses.divergence import LOG_RATIO_LIMIT, clamped_log_ratio, k3
from torl.components.algorithms.losses.policy import check_token_values, sequence_means, sequence_sums

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
    """The product of w over the sequence if it is within [low, high], else 0: masked importance sampling, as in TRL.

    Over thousands of tokens, the product is far from 1 for small differences of single tokens: see `geometric`.
    """
    totals = sequence_sums(inputs.log_weights(), inputs.sequences).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    return _within(inputs, totals.masked_fill(~inputs.loss_mask, 0.0), options)


class GeometricBounds(Bounds):
    """Options of `geometric`, with the defaults of verl's Geo-RS."""

    low: NonNegativeFloat = 0.999
    """Lower bound of the geometric mean. Sequences below it are masked."""
    high: PositiveFloat = 1.001
    """Upper bound of the geometric mean. Sequences above it are masked."""
    truncate: NonNegativeFloat = 0.0
    """Upper bound at which the weights of kept tokens are truncated, as in `tis`. 0 gives each kept token weight 1."""


def geometric(inputs: CorrectionInputs, options: GeometricBounds) -> "Tensor":
    """1, or min(w, truncate), if the geometric mean of w over the sequence is within [low, high], else 0.

    The product over a long sequence says little (`mis`); its mean does not depend on the length (Geo-RS in verl, from
    "When Speed Kills Stability", Liu et al. 2025).
    """
    log_weights = inputs.log_weights()
    means = sequence_means(log_weights, inputs.loss_mask, inputs.sequences).exp()
    return _kept(inputs, (means >= options.low) & (means <= options.high), options.truncate)


def mean_kl(inputs: CorrectionInputs, *, high: PositiveFloat = 0.01, truncate: NonNegativeFloat = 0.0) -> "Tensor":
    """1, or min(w, truncate), if the mean of w - 1 - log w over the sequence is at most `high`, else 0.

    This is verl's rejection by "seq_mean_k3", with its default.

    Args:
        inputs: Inputs of the correction.
        high: Maximum mean of the k3 estimate of KL(rollout || old) of a sequence, in nats.
        truncate: Upper bound at which the weights of kept tokens are truncated. 0 gives each kept token weight 1.
    """
    means = sequence_means(k3(inputs.log_weights()), inputs.loss_mask, inputs.sequences)
    return _kept(inputs, means <= high, truncate)


def _kept(inputs: CorrectionInputs, kept: "Tensor", truncate: float) -> "Tensor":
    log_weights = inputs.log_weights()
    weights = log_weights.exp().clamp(max=truncate) if truncate else log_weights.new_ones(log_weights.shape)
    return weights.masked_fill(~inputs.loss_mask, 1.0).masked_fill(inputs.loss_mask & ~kept, 0.0)


def _within(inputs: CorrectionInputs, log_weights: "Tensor", bounds: Bounds) -> "Tensor":
    weights = log_weights.exp()
    outside = (weights < bounds.low) | (weights > bounds.high)
    return weights.masked_fill(inputs.loss_mask & outside, 0.0)


CORRECTIONS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {"tis": tis, "icepop": icepop, "mis": mis, "geometric": geometric, "mean_kl": mean_kl}
)
"""Built-in importance corrections by their names in configurations."""
