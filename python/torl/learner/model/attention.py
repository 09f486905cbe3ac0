"""Attention over packed rows: each sample attends only to itself, at a cost quadratic in its length.

transformers separates packed samples under `sdpa` with a mask that is quadratic in the length of the *row*, and
excludes fast kernels. Here the boundaries of the samples are passed once for a row. On CUDA, torch's variable-length
kernel computes the row in one call, without another package and without synchronizing with the GPU. On the CPU and in
float32, which that kernel does not support, each sample is a separate call of causal attention.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.varlen import varlen_attn

PACKED = "torl_packed"
"""Name of packed attention in transformers' registry."""

# Arguments of transformers' models that packed attention does not support. To ignore them would be silently wrong.
_UNSUPPORTED = ("sliding_window", "softcap", "s_aux", "position_bias")
_KERNEL_DTYPES = (torch.bfloat16, torch.float16)
_MAX_KERNEL_WIDTH = 256  # of an attention head


@dataclass(frozen=True, slots=True)
class PackedSamples:
    """The boundaries of the samples in a row, created once for a row and used by every layer."""

    lengths: tuple[int, ...]
    """Length of each sample, in order."""
    cu_seqlens: Tensor
    """0 and the cumulative lengths, int32, on the row's device, as in FlashAttention."""
    max_seqlen: int
    """Length of the longest sample."""

    @classmethod
    def from_lengths(cls, lengths: tuple[int, ...], device: torch.device) -> "PackedSamples":
        """Create the boundaries from the lengths of the samples, in order."""
        ends = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32)
        return cls(lengths, ends.to(device, non_blocking=True), max(lengths))


def attention_implementation(requested: str, settings: Any) -> str:
    """Return the attention implementation for `from_pretrained`.

    `sdpa` becomes `PACKED` if the model needs only causal attention. Models with sliding windows keep transformers'
    masks.

    Args:
        requested: Requested implementation.
        settings: Config of the model.
    """
    if requested != "sdpa":
        return requested
    layer_types = set(getattr(settings, "layer_types", None) or ["full_attention"])
    windowed = getattr(settings, "sliding_window", None) is not None and getattr(settings, "use_sliding_window", True)
    if windowed or layer_types != {"full_attention"}:
        return requested
    from transformers import AttentionInterface

    AttentionInterface.register(PACKED, packed_attention)
    return PACKED


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    *,
    samples: PackedSamples,
    **settings: Any,
) -> tuple[Tensor, None]:
    """Compute causal attention within each sample of a row. An attention function of transformers.

    There is no mask: transformers creates none for an unknown attention implementation.

    Args:
        module: Attention layer.
        query: Queries, shape (1, heads, N, D).
        key: Keys, shape (1, groups, N, D).
        value: Values, shape (1, groups, N, D).
        attention_mask: Ignored.
        scaling: Factor of the attention scores. Defaults to 1 / sqrt(D).
        dropout: Dropout probability, which must be 0.
        samples: Samples of the row, with N tokens in total.
        **settings: Other arguments of the model.

    Returns:
        The attention output, shape (1, N, heads, D), and None for the attention weights.

    Raises:
        ValueError: The model requires more than causal attention without dropout.
    """
    for name in _UNSUPPORTED:
        if settings.get(name) is not None:
            raise ValueError(f"this model's attention has {name}: set model.attention = 'eager' or 'flash_attention_2'")
    if dropout:
        raise ValueError(f"packed attention requires dropout = 0, got {dropout}")
    kernel = query.is_cuda and query.dtype in _KERNEL_DTYPES and query.shape[-1] <= _MAX_KERNEL_WIDTH
    attention = varlen_attention if kernel else per_sample_attention
    return attention(query, key, value, scaling, samples), None


def varlen_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scaling: float | None,
    samples: PackedSamples,
    kernel: Callable[..., Any] = varlen_attn,
) -> Tensor:
    """Compute `packed_attention` in one call for the row. `kernel` has the signature of torch's `varlen_attn`."""
    q, k, v = (part[0].transpose(0, 1) for part in (query, key, value))
    ends, longest = samples.cu_seqlens, samples.max_seqlen
    window = (-1, 0)  # causal
    attended: Tensor = kernel(q, k, v, ends, ends, longest, longest, scale=scaling, window_size=window, enable_gqa=True)
    return attended[None]


def per_sample_attention(
    query: Tensor, key: Tensor, value: Tensor, scaling: float | None, samples: PackedSamples
) -> Tensor:
    """Compute `packed_attention` in one call for each sample."""
    pieces = [torch.split(part, list(samples.lengths), dim=2) for part in (query, key, value)]
    attended = [
        F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scaling, enable_gqa=True)
        for q, k, v in zip(*pieces, strict=True)
    ]
    return torch.cat(attended, dim=2).transpose(1, 2).contiguous()
