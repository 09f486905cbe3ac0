"""Selection of tokens that may be selected more than once, with a gradient that is summed in float32.

Many samples can use the same token of a shared prompt. torch would sum their gradients in the model's precision.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def gather_tokens(values: Tensor, index: Tensor, dim: int) -> Tensor:
    """Return the slices of `values` at `index` along a dimension, as `torch.index_select` does."""
    gathered: Tensor = _Gather.apply(values, index, dim)  # type: ignore[no-untyped-call]
    return gathered


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, index: Tensor, dim: int) -> Tensor:
        ctx.save_for_backward(index)
        ctx.shape, ctx.dim = values.shape, dim
        return values.index_select(dim, index)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (index,) = ctx.saved_tensors
        precise = torch.promote_types(gradient.dtype, torch.float32)
        total = gradient.new_zeros(ctx.shape, dtype=precise)
        return total.index_add_(ctx.dim, index, gradient.to(precise)).to(gradient.dtype), None, None
