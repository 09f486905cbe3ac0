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

# What transformers' models may pass to their attention beside the usual: leaving it out would be silently wrong.
_NOT_PLAIN = ("sliding_window", "softcap", "s_aux", "position_bias")


def attention_implementation(requested: str, settings: Any) -> str:
    """The name for `from_pretrained`: `sdpa` becomes `PACKED_SDPA` where plain causal attention is all a model needs.

    `settings` is the model's config. Models with sliding windows keep transformers' own masks.
    """
    if requested != "sdpa":
        return requested
    layer_types = set(getattr(settings, "layer_types", None) or ["full_attention"])
    windowed = getattr(settings, "sliding_window", None) is not None and getattr(settings, "use_sliding_window", True)
    if windowed or layer_types != {"full_attention"}:
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
    **settings: Any,
) -> tuple[Tensor, None]:
    """transformers' attention function for one packed row; query (1, heads, N, D), key and value (1, groups, N, D).

    `sample_lengths` sum to N. Returns (1, N, heads, D). There is no mask: transformers makes none for a name it
    does not know.

    Raises:
        ValueError: the model asks for more than causal attention.
    """
    for name in _NOT_PLAIN:
        if settings.get(name) is not None:
            raise ValueError(f"this model's attention has {name}: set model.attention = 'eager' or 'flash_attention_2'")
    pieces = [torch.split(part, list(sample_lengths), dim=2) for part in (query, key, value)]
    attended = [
        F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scaling, dropout_p=dropout, enable_gqa=True)
        for q, k, v in zip(*pieces, strict=True)
    ]
    return torch.cat(attended, dim=2).transpose(1, 2).contiguous(), None
