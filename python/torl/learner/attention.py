"""Attention over packed rows: every sample attends to itself only, and costs the square of its own length.

transformers keeps packed samples apart under `sdpa` with a mask as large as the square of the *row*, which also
rules out the fast kernels. Here the row is cut at the samples' ends and each piece is plain causal attention.
`flash_attention_2` does the same in one kernel, from the position ids.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PACKED_SDPA = "torl_packed_sdpa"


def attention_implementation(requested: str, settings: Any) -> str:
    """The name for `from_pretrained`: `sdpa` becomes `PACKED_SDPA` where plain causal attention is all a model needs.

    `settings` is the model's config. Models with sliding windows keep transformers' own masks.
    """
    if requested != "sdpa":
        return requested
    layer_types = set(getattr(settings, "layer_types", None) or ["full_attention"])
    windowed = layer_types != {"full_attention"} or bool(getattr(settings, "use_sliding_window", False))
    if windowed:
        return requested
    from transformers import AttentionInterface

    AttentionInterface.register(PACKED_SDPA, packed_attention)
    return PACKED_SDPA


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    *,
    sample_lengths: tuple[int, ...],
    **_: Any,
) -> tuple[Tensor, None]:
    """transformers' attention function for one packed row; query (1, heads, N, D), key and value (1, groups, N, D).

    `sample_lengths` sum to N. Returns (1, N, heads, D). There is no mask: transformers makes none for a name it
    does not know.
    """
    pieces = [torch.split(part, list(sample_lengths), dim=2) for part in (query, key, value)]
    attended = [
        F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scaling, dropout_p=dropout, enable_gqa=True)
        for q, k, v in zip(*pieces, strict=True)
    ]
    return torch.cat(attended, dim=2).transpose(1, 2).contiguous(), None
