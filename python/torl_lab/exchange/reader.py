"""The interface of readers of foreign files, and the texts of tokens in files that have only their ids."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

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


GROUP: Final = "torl.readers"
"""Group of the entry points of readers: each an object of the class `Reader`."""


class Reader(ABC):
    """Reads the trajectories of another program's files, for `torl convert`, `torl view` and `torl verify`.

    A package adds one by the entry point "torl.readers", whose name is the name of the format.
    """

    @abstractmethod
    def matches(self, path: Path) -> bool:
        """Whether a file has the format, from its name or its contents."""

    @abstractmethod
    def read(self, path: Path, decode: Decode | None) -> Iterator[dict[str, Any]]:
        """Yield the trajectories of a file as rows of torl: `new_row`, then `add_messages`.

        An exception means that the file is damaged.

        Args:
            path: File.
            decode: Function of token ids to their text, by the tokenizer that the user named. Optional.
        """
