"""Frozen weights in half the memory: in bfloat16, where that loses nothing.

A run with LoRA in float32 computes in float32. Most models are published in bfloat16, so their frozen weights take half
the memory as they are in the files, and are converted where they are used.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from torl.learner.model.lora import adapted_layers


def compact_frozen_weights(module: nn.Module) -> None:
    """Store the frozen float32 weights below adapters in bfloat16 if their values stay the same.

    Call it on weights that are not sharded, and after DeepSpeed's engine has checked their precision. The numbers that
    the model computes do not change.
    """
    for layer in adapted_layers(module):
        base = layer.base_layer
        if type(base) is nn.Linear and base.weight.dtype == torch.float32:
            compact = base.weight.detach().to(torch.bfloat16)
            if torch.equal(compact.float(), base.weight):
                base.weight.data = compact  # of the same parameter, which DeepSpeed's engine refers to
                layer.base_layer = CompactLinear(base)


class CompactLinear(nn.Module):
    """A frozen linear layer with weights in a lower precision than its input and its output."""

    def __init__(self, linear: nn.Linear) -> None:
        """Take the parameters of a layer, whose bias has the precision of the input."""
        super().__init__()
        self.weight = linear.weight
        self.bias = linear.bias

    def forward(self, hidden: Tensor) -> Tensor:
        """Apply the layer."""
        product: Tensor = _Product.apply(hidden, self.weight)  # type: ignore[no-untyped-call]
        return product if self.bias is None else product + self.bias


class _Product(torch.autograd.Function):
    """hidden @ weight.T, which keeps the weight, and not its conversion, for the backward pass."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(weight)
        return nn.functional.linear(hidden, weight.to(hidden.dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (weight,) = ctx.saved_tensors
        return gradient @ weight.to(gradient.dtype), None
