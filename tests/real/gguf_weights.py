"""The weights of a GGUF file by their names in transformers, read by llama.cpp's own reader."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize
from transformers import PretrainedConfig

NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def weights_of(path: Path, config: PretrainedConfig) -> Iterator[tuple[str, np.ndarray]]:
    """Yield name and values of each weight, in float32, one at a time: a large model has no room for all."""
    for tensor in GGUFReader(path).tensors:
        weight = dequantize(tensor.data, tensor.tensor_type)
        *block, name, kind = tensor.name.split(".")
        if not block:
            yield f"{OUTER[name]}.{kind}", weight
            continue
        heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}.get(name)
        if config.model_type == "llama" and heads is not None:
            weight = in_halves(weight, heads)
        yield f"model.layers.{block[1]}.{NAMES[name]}.{kind}", weight


def in_halves(weight: np.ndarray, heads: int) -> np.ndarray:
    """Put the rows of each head's two rotary halves after each other; llama.cpp has them in turn for Llama."""
    rows = weight.shape[0] // heads // 2
    return weight.reshape(heads, rows, 2, -1).swapaxes(1, 2).reshape(weight.shape)
