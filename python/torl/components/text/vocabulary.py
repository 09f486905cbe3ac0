"""The bytes that each token id of a Hugging Face tokenizer adds to the text, and turns read through them.

Decoding and encoding a response again may change its tokens, so the scanner reads the sampled ids through this table.
It is derived from the tokenizer's own decoder and checked against it.
"""

import json
import re
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from torl._core import Scan, Vocabulary
from torl.base.errors import DataError
from torl.base.types import Block, StopReason, Turn

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

# Fenced code needs a tokenizer that keeps line ends, fences and indentation.
PROBE = "Let x = 1.\n```python\nif x:\n    print(x)\n```\n```output\n1\n```\n"


def build_vocabulary(tokenizer: "PreTrainedTokenizerFast", visible: Collection[str] = ()) -> Vocabulary:
    """Return the vocabulary of a tokenizer, for scanners; `visible` special tokens are text in it.

    Raises:
        DataError: The decoder is not supported, or changes the text of a tool call, so that no marker would be found
            and a run would train without its tool.
    """
    vocabulary = Vocabulary(token_bytes(tokenizer, visible))
    restored = vocabulary.decode(tokenizer.encode(PROBE, add_special_tokens=False))
    # SentencePiece may put one space before a text, which its decoder removes.
    if restored.removeprefix(" ") != PROBE:
        raise DataError(
            f"the tokenizer turns {PROBE!r} into {restored!r}: it does not keep newlines, blanks and fences, "
            "so tool calls cannot be found in its tokens; choose a model with a byte-level or byte-fallback tokenizer"
        )
    return vocabulary


def token_bytes(tokenizer: "PreTrainedTokenizerFast", visible: Collection[str] = ()) -> list[bytes]:
    """Return the bytes that each token adds in the middle of a text, by token id.

    Special tokens that are not `visible`, and ids without a token, are empty. A token may hold a part of a UTF-8
    character. SentencePiece's token "\u2581x" is " x" here: its decoder drops the space at the start of a text only. An
    embedding may have more rows than there are ids, which the scanner reads as empty.

    Raises:
        DataError: The tokenizer has no fast backend, or a decoder that is not supported.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise DataError(f"{type(tokenizer).__name__} has no fast backend (tokenizer.json), which torl needs")
    added = backend.get_added_tokens_decoder()
    special = {index for index, token in added.items() if token.special} | set(tokenizer.all_special_ids)
    names = {index: token for token, index in backend.get_vocab(with_added_tokens=True).items() if index in special}
    return backend_token_bytes(backend, {index for index in special if names.get(index) not in visible})


def backend_token_bytes(backend: Any, hidden: Collection[int] = ()) -> list[bytes]:
    """Return the bytes that each token adds in the middle of a text, by token id.

    Args:
        backend: `Tokenizer` of the tokenizers library.
        hidden: Ids of tokens without text, such as special tokens.

    Raises:
        DataError: The decoder of the tokenizer is not supported.
    """
    to_bytes = _decoder(json.loads(backend.to_str())["decoder"])
    added = backend.get_added_tokens_decoder()
    tokens = backend.get_vocab(with_added_tokens=True)
    table = [b""] * (max(tokens.values(), default=-1) + 1)
    for token, index in tokens.items():
        if index not in hidden:
            # An added token is matched in the raw text: it stands for itself.
            table[index] = added[index].content.encode() if index in added else to_bytes(token)
    return table


def _decoder(decoder: dict[str, Any] | None) -> Callable[[str], bytes]:
    """Return a tokenizer.json's decoder as a function of one token in the middle of a text."""
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
                pass  # strips the whole text only
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
    """Return GPT-2's characters for bytes: printable Latin-1 as it is, all others from U+0100."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    alphabet = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in printable)
    return alphabet | {chr(0x100 + index): byte for index, byte in enumerate(others)}


_BYTE_ALPHABET = _byte_alphabet()


def _byte_level(token: str) -> bytes:
    if all(character in _BYTE_ALPHABET for character in token):
        return bytes(_BYTE_ALPHABET[character] for character in token)
    return token.encode()  # outside the alphabet: literal, as in the decoder


def read_turn(
    vocabulary: Vocabulary,
    token_ids: Sequence[int],
    scan: Scan,
    start: int,
    stop_reason: StopReason,
    cached_tokens: int,
) -> Turn:
    """Return the turn of sampled tokens.

    Args:
        vocabulary: Vocabulary of the model.
        token_ids: Tokens of the turn.
        scan: Scan of exactly these tokens.
        start: Index of the first token in the response.
        stop_reason: Reason that the turn ended.
        cached_tokens: Number of tokens of its prefix from the engine's cache.
    """
    data = vocabulary.decode_bytes(token_ids)
    blocks = []
    stops = np.cumsum([len(vocabulary.decode_bytes([each])) for each in token_ids]) if scan.blocks else np.zeros(0)
    for block in scan.blocks:
        # Code begins and ends with whole lines, so that no character is cut.
        first = len(data[: block.start].decode("utf-8", errors="replace"))
        token = int(np.searchsorted(stops, block.start, side="right"))
        blocks.append(Block(block.code, first, first + len(block.code), token))
    return Turn(
        start=start,
        stop=start + len(token_ids),
        text=data.decode("utf-8", errors="replace"),
        stop_reason=stop_reason,
        blocks=tuple(blocks),
        cached_tokens=cached_tokens,
    )
