"""The shape of a model, read from its config.json: numbers of parameters, and bytes per token."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torl.base.errors import ConfigError, DataError
from torl.base.inputs import parse_json, read_file, reason

# All types are decoders with gated MLP, grouped-query attention and RMS norms. Additions in each layer:
_QKV_BIAS = {"qwen2"}
_HEAD_NORMS = {"qwen3"}
_DEFAULT_WINDOW = 4096
SUPPORTED_MODEL_TYPES = {"qwen2", "qwen3", "llama", "mistral"}
"""Values of `model_type` whose parameters can be counted."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of a dense decoder, in elements.

    Attributes:
        hidden: Size of the hidden states.
        intermediate: Size of the MLP's intermediate states.
        layers: Number of layers.
        heads: Number of attention heads.
        kv_heads: Number of heads of keys and values.
        head_size: Size of a head.
        vocabulary: Number of rows of the embedding.
        tied: Whether the head shares the embedding's parameters.
        qkv_bias: Whether queries, keys and values have biases.
        head_norms: Whether queries and keys are normalized.
        dtype: Precision of the model's files. Empty if unknown.
    """

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
    dtype: str = ""

    @classmethod
    def read(cls, model: Path) -> "ModelShape":
        """Read the shape of the model in a directory.

        Raises:
            DataError: The directory does not contain a readable config.json.
            ConfigError: The model type is not supported, or attention has sliding windows.
        """
        try:
            config = parse_json(read_file(model / "config.json"))
        except (OSError, ValueError) as error:
            raise DataError(f"{model / 'config.json'}: cannot be read: {reason(error)}") from error
        return cls.from_config(config)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "ModelShape":
        """Make a shape from the contents of a config.json.

        Raises:
            ConfigError: The model type is not supported, or attention has sliding windows.
        """
        kind = config.get("model_type")
        if kind not in SUPPORTED_MODEL_TYPES:
            raise ConfigError(
                f"the memory of a model of type {kind!r} cannot be predicted; supported types: "
                f"{', '.join(sorted(SUPPORTED_MODEL_TYPES))}"
            )
        uses_windows = kind == "mistral" or config.get("use_sliding_window")  # the defaults of transformers
        if uses_windows and config.get("sliding_window", _DEFAULT_WINDOW) is not None:
            raise ConfigError(
                f"the memory of a model of type {kind!r} with sliding windows cannot be predicted: its attention masks "
                "grow with the square of a row"
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
            dtype=config.get("dtype") or config.get("torch_dtype") or "",
        )

    @property
    def query(self) -> int:
        """Width of the queries of a layer."""
        return self.heads * self.head_size

    @property
    def key(self) -> int:
        """Width of the keys of a layer, which is also the width of its values."""
        return self.kv_heads * self.head_size

    @property
    def layer_tensors(self) -> tuple[int, ...]:
        """Number of parameters of each tensor of a layer."""
        attention = (self.hidden * self.query,) * 2 + (self.hidden * self.key,) * 2
        biases = (self.query, self.key, self.key) if self.qkv_bias else ()
        norms = (self.hidden,) * 2 + (self.head_size,) * 2 * self.head_norms
        return (*attention, *biases, *(self.hidden * self.intermediate,) * 3, *norms)

    @property
    def layer_parameters(self) -> int:
        """Number of parameters of a layer."""
        return sum(self.layer_tensors)

    @property
    def tensors(self) -> tuple[int, ...]:
        """Number of parameters of each tensor of the model."""
        embeddings = (self.embedding_parameters,) * (1 if self.tied else 2)
        return (*embeddings, *self.layer_tensors * self.layers, self.hidden)

    def adapter_parameters(self, rank: int, targets: Sequence[str] = ()) -> int:
        """Count the parameters of LoRA adapters.

        Args:
            rank: Rank of the adapters.
            targets: Names of the linear layers with adapters. Empty stands for all but the head.
        """
        return self.layers * rank * sum(first + second for first, second in self._adapted(targets))

    def adapted_parameters(self, targets: Sequence[str] = ()) -> int:
        """Count the weights of the linear layers with adapters, without the adapters."""
        return self.layers * sum(first * second for first, second in self._adapted(targets))

    def _adapted(self, targets: Sequence[str]) -> list[tuple[int, int]]:
        """Return the sizes of input and output of the linear layers with adapters, in one layer of the model."""
        sizes = {
            "q_proj": (self.hidden, self.query),
            "k_proj": (self.hidden, self.key),
            "v_proj": (self.hidden, self.key),
            "o_proj": (self.query, self.hidden),
            "gate_proj": (self.hidden, self.intermediate),
            "up_proj": (self.hidden, self.intermediate),
            "down_proj": (self.intermediate, self.hidden),
        }
        return [size for name, size in sizes.items() if not targets or name in targets]

    @property
    def embedding_parameters(self) -> int:
        """Number of parameters of the embedding, and of a head that is not tied to it."""
        return self.vocabulary * self.hidden

    @property
    def trunk_parameters(self) -> int:
        """Number of parameters without the head."""
        return self.embedding_parameters + self.layers * self.layer_parameters + self.hidden

    @property
    def parameters(self) -> int:
        """Number of parameters of the model. Tied embeddings count once."""
        return self.trunk_parameters + (not self.tied) * self.embedding_parameters

    def activation_bytes(self, itemsize: int, *, fused: bool = False) -> int:
        """Count the bytes that one layer saves per token for its backward pass (as in transformers).

        Args:
            itemsize: Bytes of an element. Without `fused`, the norms save their inputs in float32 as well.
            fused: Count for Liger's kernels, which compute the insides of norms and gates again.
        """
        norms = 2 * self.hidden * itemsize  # their outputs
        norms += (2 * self.hidden + self.head_norms * (self.query + self.key)) * (itemsize if fused else 4 + itemsize)
        gates = (3 if fused else 4) * self.intermediate
        return norms + itemsize * (2 * self.query + 2 * self.key + gates)
