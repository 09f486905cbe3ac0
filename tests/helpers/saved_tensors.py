"""Tensors that a model saves for its backward pass."""

from typing import Any

import torch


def saved_bytes(model: Any, tokens: int) -> int:
    """Return the bytes that the first layer of a decoder saves for the backward pass of a row of tokens."""
    layer, positions = model.model.layers[0], torch.arange(tokens)[None]
    hidden = torch.randn(1, tokens, model.config.hidden_size, dtype=model.dtype, requires_grad=True)
    embeddings = model.model.rotary_emb(hidden, positions)
    # All layers share those of the positions.
    shared = {tensor.untyped_storage().data_ptr() for tensor in (*layer.parameters(), *embeddings)}
    saved: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        layer(hidden, position_embeddings=embeddings, attention_mask=None, position_ids=positions)
    return sum(tensor.untyped_storage().nbytes() for place, tensor in saved.items() if place not in shared)
