"""The critic's loss."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class ValueLoss:
    """A critic's loss token by token, and how often its clip held."""

    per_token: "Tensor"  # shape of the inputs, 0 outside the mask; carries the gradient
    clipped_tokens: "Tensor"  # scalar


def clipped_value_loss(
    values: "Tensor", old_values: "Tensor", returns: "Tensor", loss_mask: "Tensor", *, clip: float | None
) -> ValueLoss:
    """Half the squared error, the larger of that of `values` and of `values` kept within `clip` of `old_values`.

    As in PPO's reference code; None does not clip. Gradients flow through `values` only.
    """
    values, old_values, returns = (
        tensor.masked_fill(~loss_mask, 0.0) for tensor in (values, old_values.detach(), returns.detach())
    )
    errors = (values - returns).square()
    if clip is None:
        return ValueLoss(errors / 2, (loss_mask & ~loss_mask).sum())
    kept = old_values + (values - old_values).clamp(-clip, clip)
    clipped = (kept - returns).square()
    return ValueLoss(errors.maximum(clipped) / 2, (clipped > errors).sum())
