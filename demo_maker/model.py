"""Qwen2 in plain torch, small enough to read: what pre-trains and measures the demo's base model.

Parameters are named as in `transformers`, so the saved file loads there; a test compares the two.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The demo's architecture: 1.99 M parameters."""

    vocabulary: int = 1_876
    width: int = 192
    layers: int = 4
    heads: int = 4
    key_value_heads: int = 2
    feed_forward: int = 512
    rope_base: float = 10_000.0
    norm_epsilon: float = 1e-6
    max_positions: int = 1_024

    @property
    def head_width(self) -> int:
        """Width of one attention head."""
        return self.width // self.heads


@dataclass(slots=True)
class LayerCache:
    """Keys and values of one layer, (batch, key-value heads, positions, head width); `length` positions are filled."""

    keys: Tensor
    values: Tensor
    length: int = 0

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store more positions; returns all filled ones."""
        stop = self.length + keys.shape[2]
        self.keys[:, :, self.length : stop] = keys
        self.values[:, :, self.length : stop] = values
        self.length = stop
        return self.keys[:, :, :stop], self.values[:, :, :stop]


def rotate(states: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotary position embedding, halves paired as in Llama."""
    first, second = states.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


class Projection(nn.Linear):
    """A linear layer that may multiply in a narrower type than its fp32 weights, which is faster in training."""

    multiply_in: torch.dtype = torch.float32

    def forward(self, input: Tensor) -> Tensor:
        """(..., inputs) to (..., outputs), in the type of the input."""
        narrow = self.multiply_in
        bias = None if self.bias is None else self.bias.to(narrow)
        return functional.linear(input.to(narrow), self.weight.to(narrow), bias).to(input.dtype)


class Attention(nn.Module):
    """Causal grouped-query attention with biases on queries, keys and values."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.shape = shape
        key_value_width = shape.key_value_heads * shape.head_width
        self.q_proj = Projection(shape.width, shape.width)
        self.k_proj = Projection(shape.width, key_value_width)
        self.v_proj = Projection(shape.width, key_value_width)
        self.o_proj = Projection(shape.width, shape.width, bias=False)

    def forward(self, hidden: Tensor, rotation: tuple[Tensor, Tensor], cache: LayerCache | None) -> Tensor:
        """(batch, tokens, width) to the same shape."""
        batch, length, width = hidden.shape

        def split(states: Tensor) -> Tensor:
            return states.view(batch, length, -1, self.shape.head_width).transpose(1, 2)

        queries, keys, values = (split(project(hidden)) for project in (self.q_proj, self.k_proj, self.v_proj))
        queries, keys = rotate(queries, *rotation), rotate(keys, *rotation)
        if cache is not None:
            keys, values = cache.append(keys, values)
        repeats = self.shape.heads // self.shape.key_value_heads
        keys, values = keys.repeat_interleave(repeats, dim=1), values.repeat_interleave(repeats, dim=1)
        mixed = functional.scaled_dot_product_attention(queries, keys, values, is_causal=length > 1)
        output: Tensor = self.o_proj(mixed.transpose(1, 2).reshape(batch, length, width))
        return output


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.gate_proj = Projection(shape.width, shape.feed_forward, bias=False)
        self.up_proj = Projection(shape.width, shape.feed_forward, bias=False)
        self.down_proj = Projection(shape.feed_forward, shape.width, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """(batch, tokens, width) to the same shape."""
        narrow = hidden.to(self.down_proj.multiply_in)  # stays narrow between the projections
        output: Tensor = self.down_proj(functional.silu(self.gate_proj(narrow)) * self.up_proj(narrow))
        return output.to(hidden.dtype)


class Layer(nn.Module):
    """One pre-norm transformer layer."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(shape.width, eps=shape.norm_epsilon)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = nn.RMSNorm(shape.width, eps=shape.norm_epsilon)
        self.mlp = FeedForward(shape)

    def forward(self, hidden: Tensor, rotation: tuple[Tensor, Tensor], cache: LayerCache | None) -> Tensor:
        """(batch, tokens, width) to the same shape."""
        hidden = hidden + self.self_attn(self.input_layernorm(hidden), rotation, cache)
        output: Tensor = hidden + self.mlp(self.post_attention_layernorm(hidden))
        return output


class Body(nn.Module):
    """Embedding, layers and the last norm."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, eps=shape.norm_epsilon)


class DemoModel(nn.Module):
    """A causal language model with tied embeddings."""

    cosine: Tensor
    sine: Tensor

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        self.shape = shape
        self.model = Body(shape)
        frequencies = shape.rope_base ** (-torch.arange(0, shape.head_width, 2) / shape.head_width)
        angles = torch.outer(torch.arange(shape.max_positions, dtype=torch.float32), frequencies)
        self.register_buffer("cosine", angles.cos(), persistent=False)
        self.register_buffer("sine", angles.sin(), persistent=False)

    def initialize(self, generator: torch.Generator, deviation: float = 0.02, embedding: float = 0.05) -> None:
        """Normal weights, the projections back into the residual stream scaled down by depth; zero biases."""
        for name, parameter in self.named_parameters():
            if parameter.ndim < 2:
                nn.init.constant_(parameter, 0.0 if name.endswith("bias") else 1.0)
                continue
            residual = name.endswith(("o_proj.weight", "down_proj.weight"))
            scale = deviation / math.sqrt(2 * self.shape.layers) if residual else deviation
            scale = embedding if name == "model.embed_tokens.weight" else scale
            nn.init.normal_(parameter, std=scale, generator=generator)

    def multiply_in(self, dtype: torch.dtype) -> None:
        """Set the type of the matrix products inside the layers; attention, norms and logits stay in fp32."""
        for module in self.modules():
            if isinstance(module, Projection):
                module.multiply_in = dtype

    def new_caches(self, batch: int, positions: int) -> list[LayerCache]:
        """Empty caches for `batch` rows of at most `positions` tokens."""
        size = (batch, self.shape.key_value_heads, positions, self.shape.head_width)
        return [LayerCache(torch.empty(size), torch.empty(size)) for _ in range(self.shape.layers)]

    def hidden_states(self, token_ids: Tensor, caches: list[LayerCache] | None = None) -> Tensor:
        """Token ids (batch, tokens) to the last hidden states (batch, tokens, width).

        With caches the tokens continue the rows stored there: a whole prompt into empty ones, then one at a time.
        """
        start = caches[0].length if caches else 0
        stop = start + token_ids.shape[1]
        rotation = self.cosine[start:stop], self.sine[start:stop]
        hidden = self.model.embed_tokens(token_ids)
        for index, layer in enumerate(self.model.layers):
            hidden = layer(hidden, rotation, caches[index] if caches else None)
        output: Tensor = self.model.norm(hidden)
        return output

    def logits(self, hidden: Tensor) -> Tensor:
        """Hidden states (..., width) to logits (..., vocabulary)."""
        return functional.linear(hidden, self.model.embed_tokens.weight)


def configuration(shape: ModelShape, end_of_text_id: int) -> dict[str, Any]:
    """`config.json` for `transformers`."""
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.width,
        "intermediate_size": shape.feed_forward,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.key_value_heads,
        "max_position_embeddings": shape.max_positions,
        "rms_norm_eps": shape.norm_epsilon,
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.rope_base},
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "use_sliding_window": False,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "bos_token_id": None,
        "eos_token_id": end_of_text_id,
        "pad_token_id": end_of_text_id,
        "dtype": "float32",
    }


def save_model(model: DemoModel, directory: Path, end_of_text_id: int) -> None:
    """Write config, generation config and fp32 weights in the layout of the Hugging Face hub."""
    directory.mkdir(parents=True, exist_ok=True)
    generation = {"eos_token_id": end_of_text_id, "pad_token_id": end_of_text_id, "do_sample": True}
    for name, content in (
        ("config.json", configuration(model.shape, end_of_text_id)),
        ("generation_config.json", generation),
    ):
        (directory / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    weights = {name: tensor.detach().contiguous() for name, tensor in model.state_dict().items()}
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})


def load_model(directory: Path, shape: ModelShape | None = None) -> DemoModel:
    """The model that `save_model` wrote."""
    model = DemoModel(shape or ModelShape())
    model.load_state_dict(load_file(directory / "model.safetensors"))
    return model
