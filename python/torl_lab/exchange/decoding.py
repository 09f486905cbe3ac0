"""The texts of a model's tokens, for files that have token ids without texts."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from torl.base.errors import DataError
from torl.components.hub import local_tokenizer_file
from torl.components.text.vocabulary import backend_token_bytes

Decode: TypeAlias = Callable[[Sequence[int]], str]
"""A function of token ids to their text."""


def model_token_bytes(model: str) -> list[bytes]:
    """Return the bytes of all tokens of a model by id. Nothing is downloaded.

    Args:
        model: Directory of the model, or its name in the Hub's cache.

    Raises:
        DataError: Its `tokenizer.json` is missing or cannot be read, or the library tokenizers is not installed.
    """
    file = local_tokenizer_file(model)
    if file is None:
        raise DataError(f"{model}: no tokenizer.json on this machine")
    try:
        from tokenizers import Tokenizer

        return backend_token_bytes(Tokenizer.from_file(str(file)))
    except ModuleNotFoundError as error:
        raise DataError("tokenizers is not installed: pip install 'torl[view]'") from error
    except Exception as error:  # the library raises Exception itself for a damaged file
        raise DataError(f"{file}: cannot be read: {error}") from error


def model_decoder(model: str) -> Decode:
    """Return the decoder of a model's tokens.

    Raises:
        DataError: The tokenizer cannot be read.
    """
    table = model_token_bytes(model)

    def decode(ids: Sequence[int]) -> str:
        found = (table[token] if 0 <= token < len(table) else b"" for token in ids)
        return b"".join(found).decode("utf-8", errors="replace")

    return decode
