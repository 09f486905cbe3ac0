"""Attention over packed rows: every sample attends to itself only, and costs the square of its own length.

transformers keeps packed samples apart under `sdpa` with a mask as large as the square of the *row*, which also
rules out the fast kernels. Here a row says once where its samples end. On CUDA torch's variable-length kernel takes
the whole row in one call, without a package of its own and without asking the GPU anything; elsewhere, and in float32,
which that kernel lacks, the row is cut at the samples' ends and each piece is plain causal attention.
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

# What transformers' models may pass to their attention beside the usual: leaving it out would be silently wrong.
_NOT_PLAIN = ("sliding_window", "softcap", "s_aux", "position_bias")
_KERNEL_DTYPES = (torch.bfloat16, torch.float16)
_KERNEL_WIDTH = 256  # of a head, at most


@dataclass(frozen=True, slots=True)
class PackedSamples:
    """Where the samples of a row are: made once for a row, read by every layer.

    `ends` (int32, on the row's device) begins with 0 and has the cumulative lengths: FlashAttention's `cu_seqlens`.
    """

    lengths: tuple[int, ...]
    cu_seqlens: Tensor
    max_seqlen: int

    @classmethod
    def from_lengths(cls, lengths: tuple[int, ...], device: torch.device) -> "PackedSamples":
        """From the lengths of the samples, in their order in the row."""
        ends = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32)
        return cls(lengths, ends.to(device, non_blocking=True), max(lengths))


def attention_implementation(requested: str, settings: Any) -> str:
    """The name for `from_pretrained`: `sdpa` becomes `PACKED` where plain causal attention is all a model needs.

    `settings` is the model's config. Models with sliding windows keep transformers' own masks.
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
    """transformers' attention function for one packed row; query (1, heads, N, D), key and value (1, groups, N, D).

    `samples` have N tokens together. Returns (1, N, heads, D). There is no mask: transformers makes none for a name it
    does not know.

    Raises:
        ValueError: the model asks for more than causal attention without dropout.
    """
    for name in _NOT_PLAIN:
        if settings.get(name) is not None:
            raise ValueError(f"this model's attention has {name}: set model.attention = 'eager' or 'flash_attention_2'")
    if dropout:
        raise ValueError("packed attention has no dropout: torl loads models without")
    kernel = query.is_cuda and query.dtype in _KERNEL_DTYPES and query.shape[-1] <= _KERNEL_WIDTH
    way = varlen_attention if kernel else per_sample_attention
    return way(query, key, value, scaling, samples), None


def varlen_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scaling: float | None,
    samples: PackedSamples,
    kernel: Callable[..., Any] = varlen_attn,
) -> Tensor:
    """One call for the row, shapes as in `packed_attention`. `kernel` has the signature of torch's `varlen_attn`."""
    q, k, v = (part[0].transpose(0, 1) for part in (query, key, value))
    ends, longest = samples.cu_seqlens, samples.max_seqlen
    window = (-1, 0)  # causal
    attended: Tensor = kernel(q, k, v, ends, ends, longest, longest, scale=scaling, window_size=window, enable_gqa=True)
    return attended[None]


def per_sample_attention(
    query: Tensor, key: Tensor, value: Tensor, scaling: float | None, samples: PackedSamples
) -> Tensor:
    """One call for each sample, shapes as in `packed_attention`."""
    pieces = [torch.split(part, list(samples.lengths), dim=2) for part in (query, key, value)]
    attended = [
        F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scaling, enable_gqa=True)
        for q, k, v in zip(*pieces, strict=True)
    ]
    return torch.cat(attended, dim=2).transpose(1, 2).contiguous()
