"""Attention over packed rows: each sample attends only to itself, at a cost quadratic in its length.

transformers separates packed samples under `sdpa` with a mask that is quadratic in the length of the *row*, and
excludes fast kernels. Here the boundaries of the pieces are passed once for a row: whole samples, and prompts with the
rest of the samples that share them. On CUDA, torch's variable-length kernel computes the row in one call, without
another package and without synchronizing with the GPU. On the CPU and in float32, which that kernel does not support,
each piece is a separate call of causal attention.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.attention.varlen import varlen_attn

from torl.learner.rows import RowPieces

PACKED = "torl_packed"
"""Name of packed attention in transformers' registry."""

# Arguments of transformers' models that packed attention does not support. To ignore them would be silently wrong.
_UNSUPPORTED = ("sliding_window", "softcap", "s_aux", "position_bias")
_KERNEL_DTYPES = (torch.bfloat16, torch.float16)
_MAX_KERNEL_WIDTH = 256  # of an attention head


@dataclass(frozen=True, slots=True)
class PackedPieces:
    """The boundaries of the pieces of a row, created once for a row and used by every layer."""

    lengths: tuple[int, ...]
    """Length of each piece, in order."""
    key_counts: tuple[int, ...]
    """Number of keys that each piece attends to: those of the prompt that it continues, then its own."""
    query_ends: Tensor
    """0 and the cumulative lengths, int32, on the row's device, as in FlashAttention."""
    key_ends: Tensor
    """0 and the cumulative numbers of keys, int32."""
    key_index: Tensor | None
    """Index in the row of each of these keys, int64. None if no piece continues a prompt."""
    longest: int
    """Length of the longest piece."""
    most_keys: int
    """Largest number of keys of a piece."""

    @classmethod
    def from_row(cls, pieces: RowPieces, device: torch.device) -> "PackedPieces":
        """Create the boundaries of the pieces of a row."""
        own = [range(end - length, end) for length, end in zip(pieces.lengths, accumulate(pieces.lengths), strict=True)]
        spans = [
            [own[index]] if prompt is None else [own[prompt], own[index]] for index, prompt in enumerate(pieces.prompts)
        ]
        counts = tuple(sum(map(len, parts)) for parts in spans)
        query_ends, key_ends = (
            torch.tensor([0, *accumulate(lengths)], dtype=torch.int32).to(device, non_blocking=True)
            for lengths in (pieces.lengths, counts)
        )
        key_index = None
        if pieces.share_prompts:
            key_index = torch.cat([torch.arange(part.start, part.stop) for parts in spans for part in parts])
            key_index = key_index.to(device, non_blocking=True)
        return cls(pieces.lengths, counts, query_ends, key_ends, key_index, max(pieces.lengths), max(counts))


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


def can_share_prompts(model: Any) -> bool:
    """Whether a model's attention, on one rank, is `packed_attention`, which can attend to a shared prompt."""
    return bool(model.config._attn_implementation == PACKED)


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    *,
    pieces: PackedPieces,
    **settings: Any,
) -> tuple[Tensor, None]:
    """Compute causal attention within each sample of a row. An attention function of transformers.

    There is no mask: transformers creates none for an unknown attention implementation.

    Args:
        module: Attention layer.
        query: Queries, shape (1, heads, N, D).
        key: Keys, shape (1, groups, N, D).
        value: Values, shape (1, groups, N, V).
        attention_mask: Ignored.
        scaling: Factor of the attention scores. Defaults to 1 / sqrt(D).
        dropout: Dropout probability, which must be 0.
        pieces: Pieces of the row, with N tokens in total.
        **settings: Other arguments of the model.

    Returns:
        The attention output, shape (1, N, heads, V), and None for the attention weights.

    Raises:
        ValueError: The model requires more than causal attention without dropout.
    """
    for name in _UNSUPPORTED:
        if settings.get(name) is not None:
            raise ValueError(f"this model's attention has {name}: set model.attention = 'eager' or 'flash_attention_2'")
    if dropout:
        raise ValueError(f"packed attention requires dropout = 0, got {dropout}")
    if pieces.key_index is not None:
        key, value = (gather_tokens(part, pieces.key_index, 2) for part in (key, value))
    widths = value.shape[-1] <= query.shape[-1] <= _MAX_KERNEL_WIDTH
    kernel = query.is_cuda and query.dtype in _KERNEL_DTYPES and widths
    attention = varlen_attention if kernel else piecewise_attention
    return attention(query, key, value, scaling, pieces), None


def varlen_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scaling: float | None,
    pieces: PackedPieces,
    kernel: Callable[..., Any] = varlen_attn,
) -> Tensor:
    """Compute `packed_attention` in one call for the row.

    FlashAttention aligns the queries of a piece with the last of its keys. It takes values as wide as the keys, so that
    narrower ones, as those of latent attention, are padded.

    Args:
        query: Queries, shape (1, heads, N, D).
        key: Keys that the pieces attend to, one piece after another, shape (1, groups, keys, D).
        value: Values of the keys, of width D or less.
        scaling: Factor of the attention scores.
        pieces: Pieces of the row.
        kernel: Function with the signature of torch's `varlen_attn`.
    """
    width = value.shape[-1]
    if width < query.shape[-1]:
        value = F.pad(value, (0, query.shape[-1] - width))
    q, k, v = (part[0].transpose(0, 1) for part in (query, key, value))
    ends = pieces.query_ends, pieces.key_ends, pieces.longest, pieces.most_keys
    window = (-1, 0)  # causal
    attended: Tensor = kernel(q, k, v, *ends, scale=scaling, window_size=window, enable_gqa=True)
    return attended[None, ..., :width]


def piecewise_attention(
    query: Tensor, key: Tensor, value: Tensor, scaling: float | None, pieces: PackedPieces
) -> Tensor:
    """Compute `packed_attention` in one call for each piece. For arguments, see `varlen_attention`."""
    queries = torch.split(query, list(pieces.lengths), dim=2)
    keys, values = (torch.split(part, list(pieces.key_counts), dim=2) for part in (key, value))
    attended = []
    for q, k, v in zip(queries, keys, values, strict=True):
        before = k.shape[2] - q.shape[2]
        mask = q.new_ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(before) if before else None
        attended.append(
            F.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, is_causal=mask is None, scale=scaling, enable_gqa=True
            )
        )
    return torch.cat(attended, dim=2).transpose(1, 2).contiguous()


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
