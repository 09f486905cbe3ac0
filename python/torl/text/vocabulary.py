"""The bytes that each token id of a Hugging Face tokenizer adds to the text.

Decoding and encoding a response again may change its tokens; the scanner therefore reads the sampled ids
themselves, through this table. It is derived from the tokenizer's own decoder and checked against it.
"""

import json
import re
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from torl._core import Vocabulary
from torl.errors import DataError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

# What the ToRL format needs of a tokenizer: line ends, fences and indentation survive encoding.
PROBE = "Let x = 1.\n```python\nif x:\n    print(x)\n```\n```output\n1\n```\n"


def build_vocabulary(tokenizer: "PreTrainedTokenizerFast", visible: Collection[str] = ()) -> Vocabulary:
    """The vocabulary of a tokenizer, for scanners; `visible` special tokens are text in it, as they are written.

    Raises `DataError` if its decoder is not understood, or if it does not keep the text of a tool call byte for
    byte: without that no marker would ever be found, and a run would train without its tool.
    """
    vocabulary = Vocabulary(token_bytes(tokenizer, visible))
    restored = vocabulary.decode(tokenizer.encode(PROBE, add_special_tokens=False))
    # SentencePiece may put one space before a text, which its decoder takes away again.
    if restored.removeprefix(" ") != PROBE:
        raise DataError(
            f"the tokenizer turns {PROBE!r} into {restored!r}: it does not keep newlines, blanks and fences, "
            "so tool calls cannot be found in its tokens; choose a model with a byte-level or byte-fallback tokenizer"
        )
    return vocabulary


def token_bytes(tokenizer: "PreTrainedTokenizerFast", visible: Collection[str] = ()) -> list[bytes]:
    """`result[i]` are the bytes that token i adds in the middle of a text, for all ids of the tokenizer.

    Special tokens that are not `visible`, and ids without a token, are empty: they are never text. A token may hold a
    part of a UTF-8 character. SentencePiece's token "\u2581x" is " x" here: its decoder drops the space at the start of
    a text only. An embedding may have more rows than there are ids; the scanner takes those for empty.

    Raises `DataError` for a tokenizer without a fast backend, or with a decoder that is not understood.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise DataError(f"{type(tokenizer).__name__} has no fast backend (tokenizer.json), which torl needs")
    to_bytes = _decoder(json.loads(backend.to_str())["decoder"])
    added = backend.get_added_tokens_decoder()
    special = {index for index, token in added.items() if token.special} | set(tokenizer.all_special_ids)
    tokens = backend.get_vocab(with_added_tokens=True)
    table = [b""] * (max(tokens.values(), default=-1) + 1)
    for token, index in tokens.items():
        if index in special and token not in visible:
            continue
        # An added token is matched in the raw text: it stands for itself.
        table[index] = added[index].content.encode() if index in added else to_bytes(token)
    return table


def _decoder(decoder: dict[str, Any] | None) -> Callable[[str], bytes]:
    """A tokenizer.json's decoder as a function of one token that stands in the middle of a text."""
    if decoder is None:
        raise DataError("the tokenizer has no decoder: the text of its tokens is unknown")
    steps = decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
    kinds = [step["type"] for step in steps]
    if kinds == ["ByteLevel"]:
        return _byte_level
    replacements: list[tuple[str, str]] = []
    for step in steps:
        match step:
            case {"type": "Replace", "pattern": {"String": str(old)}, "content": str(new)}:
                replacements.append((old, new))
            case {"type": "Metaspace", "replacement": str(old)}:
                replacements.append((old, " "))
            case {"type": "ByteFallback" | "Fuse"}:
                pass
            case {"type": "Strip"} if "Fuse" in kinds:
                pass  # of the text as a whole
            case _:
                raise DataError(f"the tokenizer's decoder {json.dumps(step)} is not supported")
    byte_fallback = "ByteFallback" in kinds

    def to_bytes(token: str) -> bytes:
        for old, new in replacements:
            token = token.replace(old, new)
        byte = re.fullmatch(r"<0x([0-9A-Fa-f]{2})>", token) if byte_fallback else None
        return bytes.fromhex(byte[1]) if byte else token.encode()

    return to_bytes


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's characters for bytes: printable Latin-1 stands for itself, all others are shifted from U+0100 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    alphabet = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in printable)
    return alphabet | {chr(0x100 + index): byte for index, byte in enumerate(others)}


_BYTE_ALPHABET = _byte_alphabet()


def _byte_level(token: str) -> bytes:
    if all(character in _BYTE_ALPHABET for character in token):
        return bytes(_BYTE_ALPHABET[character] for character in token)
    return token.encode()  # not written in the alphabet: literal, as the decoder takes it
