"""The critic's loss."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class ValueLoss:
    """The critic's loss, and the number of clipped tokens."""

    per_token: "Tensor"
    """Loss of each token, with gradient; 0 outside the mask. Has the shape of the inputs."""
    clipped_tokens: "Tensor"
    """Number of tokens whose gradient is removed by clipping. Scalar."""


def clipped_value_loss(
    values: "Tensor", old_values: "Tensor", returns: "Tensor", loss_mask: "Tensor", *, clip: float | None
) -> ValueLoss:
    """Compute the clipped squared error, token by token, as in PPO's reference implementation.

    max((V - R)^2, (clamp(V, V_old - clip, V_old + clip) - R)^2) / 2, with values V and returns R.

    Args:
        values: The critic's current values, which carry the gradient.
        old_values: The critic's values before the first update of the step.
        returns: Value targets.
        loss_mask: True for sampled tokens.
        clip: Value clip range. None disables clipping.
    """
    values, old_values, returns = (
        tensor.masked_fill(~loss_mask, 0.0) for tensor in (values, old_values.detach(), returns.detach())
    )
    errors = (values - returns).square()
    if clip is None:
        return ValueLoss(errors / 2, (loss_mask & ~loss_mask).sum())
    clipped_values = old_values + (values - old_values).clamp(-clip, clip)
    clipped = (clipped_values - returns).square()
    return ValueLoss(errors.maximum(clipped) / 2, (clipped > errors).sum())
