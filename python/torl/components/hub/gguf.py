"""Convert a GGUF file to a model directory with safetensors: `python -m torl.components.hub.gguf FILE DIRECTORY`.

transformers reads the weights, which are de-quantized and rounded to bfloat16. The tokenizer is built from the file's
vocabulary with the splitting rules of its family: transformers' own conversion leaves out the rule that separates
digits, so that whitespace before a number would be split into other tokens than in training.
"""

import sys
from collections.abc import Callable, Mapping
from enum import IntEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any


class _TokenType(IntEnum):
    """Types of tokens in a GGUF file (llama.cpp's `llama_token_type`)."""

    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5


def _split_smollm() -> tuple[Any, Any]:
    from tokenizers import pre_tokenizers

    digits = pre_tokenizers.Digits(individual_digits=True)
    return None, pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])


def _split_qwen2() -> tuple[Any, Any]:
    from tokenizers import Regex, normalizers, pre_tokenizers
    from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

    words = pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), "isolated")
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return normalizers.NFC(), pre_tokenizers.Sequence([words, bytes_])


SPLITTERS: Mapping[str, Callable[[], tuple[Any, Any]]] = MappingProxyType(
    {"smollm": _split_smollm, "qwen2": _split_qwen2}
)
"""Functions that return the normalizer and the pre-tokenizer of a family, by the file's `tokenizer.ggml.pre`."""


def convert(file: Path, directory: Path) -> None:
    """Write the model and the tokenizer of a GGUF file to a directory.

    Args:
        file: GGUF file with a vocabulary of byte-level BPE.
        directory: Existing directory.

    Raises:
        ValueError: The architecture or the tokenizer is not supported.
    """
    import torch
    from transformers import AutoModelForCausalLM, GgufConfig

    build_tokenizer(file).save_pretrained(directory)
    model: Any = AutoModelForCausalLM.from_pretrained(
        file.parent,
        gguf_file=file.name,
        quantization_config=GgufConfig(gguf_file=file.name, dequantize=True),
        dtype=torch.bfloat16,
        local_files_only=True,
    )
    model.save_pretrained(directory)
    for weights in directory.glob("*.safetensors"):
        weights.chmod((directory / "config.json").stat().st_mode)  # created readable by their owner only


def build_tokenizer(file: Path) -> Any:
    """Return the tokenizer of a GGUF file, as a `PreTrainedTokenizerFast`.

    Raises:
        ValueError: The vocabulary is not byte-level BPE, or its splitting rules are unknown.
    """
    from gguf import GGUFReader
    from tokenizers import AddedToken, Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    fields = GGUFReader(file).fields

    def value(name: str) -> Any:
        return fields[name].contents() if name in fields else None

    kind, family = value("tokenizer.ggml.model"), value("tokenizer.ggml.pre")
    if kind != "gpt2" or family not in SPLITTERS:
        raise ValueError(f"a tokenizer of type {kind!r} with the rules {family!r} is not supported")
    tokens, types = value("tokenizer.ggml.tokens"), value("tokenizer.ggml.token_type")
    used = [(token, index) for index, token in enumerate(tokens) if types[index] != _TokenType.UNUSED]
    merges = [tuple(merge.split(" ")) for merge in value("tokenizer.ggml.merges")]
    backend = Tokenizer(models.BPE(dict(used), merges))
    normalizer, backend.pre_tokenizer = SPLITTERS[family]()
    if normalizer is not None:
        backend.normalizer = normalizer
    backend.decoder = decoders.ByteLevel()
    added = (_TokenType.CONTROL, _TokenType.USER_DEFINED)
    backend.add_tokens(
        [
            AddedToken(token, normalized=False, special=types[index] == _TokenType.CONTROL)
            for token, index in used
            if types[index] in added
        ]
    )
    named = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding", "unk_token": "unknown"}
    ids = {name: value(f"tokenizer.ggml.{key}_token_id") for name, key in named.items()}
    special = {name: tokens[index] for name, index in ids.items() if index is not None}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **special)
    tokenizer.chat_template = value("tokenizer.chat_template")
    return tokenizer


def main() -> int:
    """Convert the file, and print the reason of a failure on standard output."""
    try:
        convert(Path(sys.argv[1]), Path(sys.argv[2]))
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
