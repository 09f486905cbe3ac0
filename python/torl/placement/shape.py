"""The shape of a model, from its config.json: how many parameters it has, and what a token of it takes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torl.errors import ConfigError, DataError

# Decoders of one kind: gated MLP, grouped-query attention, RMS norms. What else a type has in each layer.
_QKV_BIAS = {"qwen2"}
_HEAD_NORMS = {"qwen3"}
SUPPORTED_MODEL_TYPES = {"qwen2", "qwen3", "llama", "mistral"}
"""Values of `model_type` whose parameters are counted here."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of a dense decoder, in elements."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    tied: bool
    qkv_bias: bool = False
    head_norms: bool = False

    @classmethod
    def read(cls, model: Path) -> "ModelShape":
        """Of the model in a directory.

        Raises:
            DataError: it has no readable config.json.
            ConfigError: see `from_config`.
        """
        try:
            config = json.loads((model / "config.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(f"{model / 'config.json'}: cannot be read: {error}") from error
        return cls.from_config(config)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "ModelShape":
        """Of what a config.json holds.

        Raises:
            ConfigError: the model is of a kind whose bytes torl cannot count.
        """
        kind = config.get("model_type")
        if kind not in SUPPORTED_MODEL_TYPES:
            raise ConfigError(
                f"the memory of a model of type {kind!r} cannot be predicted; of these it can: "
                f"{', '.join(sorted(SUPPORTED_MODEL_TYPES))}"
            )
        heads = config["num_attention_heads"]
        return cls(
            hidden=config["hidden_size"],
            intermediate=config["intermediate_size"],
            layers=config["num_hidden_layers"],
            heads=heads,
            kv_heads=config.get("num_key_value_heads") or heads,
            head_size=config.get("head_dim") or config["hidden_size"] // heads,
            vocabulary=config["vocab_size"],
            tied=bool(config.get("tie_word_embeddings", False)),
            qkv_bias=kind in _QKV_BIAS or bool(config.get("attention_bias")),
            head_norms=kind in _HEAD_NORMS,
        )

    @property
    def query(self) -> int:
        """Width of the queries of a layer."""
        return self.heads * self.head_size

    @property
    def key(self) -> int:
        """Width of the keys of a layer, and of its values."""
        return self.kv_heads * self.head_size

    @property
    def layer_parameters(self) -> int:
        """Of one layer."""
        attention = self.hidden * (2 * self.query + 2 * self.key) + self.qkv_bias * (self.query + 2 * self.key)
        norms = 2 * self.hidden + self.head_norms * 2 * self.head_size
        return attention + 3 * self.hidden * self.intermediate + norms

    def adapter_parameters(self, rank: int, targets: Sequence[str] = ()) -> int:
        """Of adapters of this rank beside the linear layers with these names; beside all but the head if empty."""
        widths = {
            "q_proj": self.hidden + self.query,
            "k_proj": self.hidden + self.key,
            "v_proj": self.hidden + self.key,
            "o_proj": self.query + self.hidden,
            "gate_proj": self.hidden + self.intermediate,
            "up_proj": self.hidden + self.intermediate,
            "down_proj": self.intermediate + self.hidden,
        }
        return self.layers * rank * sum(width for name, width in widths.items() if not targets or name in targets)

    @property
    def embedding_parameters(self) -> int:
        """Of the embedding, and of a head that is not tied to it as well."""
        return self.vocabulary * self.hidden

    @property
    def trunk_parameters(self) -> int:
        """Of everything but the head."""
        return self.embedding_parameters + self.layers * self.layer_parameters + self.hidden

    @property
    def parameters(self) -> int:
        """Of the whole model; tied tables count once."""
        return self.trunk_parameters + (not self.tied) * self.embedding_parameters

    def activation_bytes(self, itemsize: int) -> int:
        """What the backward pass of one layer keeps of its forward pass for a token (counted in transformers' Qwen2).

        The norms compute in float32, whatever the precision of the rest.
        """
        norms = 2 * self.hidden * (4 + 2 * itemsize)
        return norms + itemsize * (2 * self.query + 2 * self.key + 4 * self.intermediate)
