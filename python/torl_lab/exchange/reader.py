"""The interface of readers of foreign files, and the readers that installed packages add."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from torl_lab.exchange.decoding import Decode

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
