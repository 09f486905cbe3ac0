"""Trajectories in the formats of other libraries, as rows of torl's files: read, and written as ATIF."""

import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from torl.base.errors import RecordError, TorlError
from torl.base.guard import place_in_custom_code
from torl.base.inputs import open_file
from torl.base.plugins import load_plugin, plugin_names, plugins
from torl.run.records.row_types import Row
from torl.run.records.rows import check_row
from torl_lab.exchange.atif import read_atif
from torl_lab.exchange.dumps import read_dump
from torl_lab.exchange.logs import first_object, is_trl, read_inspect, read_trl, read_verl
from torl_lab.exchange.tokens import Decode
from torl_lab.exchange.tokens import model_decoder as model_decoder
from torl_lab.exchange.tokens import model_token_bytes as model_token_bytes
from torl_lab.exchange.traces import is_trace, read_verifiers

_GROUP: Final = "torl.readers"
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


@dataclass(frozen=True, slots=True)
class _OwnReader(Reader):
    is_format: Callable[[Path], bool]
    rows: Callable[[Path, Decode | None], Iterator[dict[str, Any]]]

    def matches(self, path: Path) -> bool:
        return self.is_format(path)

    def read(self, path: Path, decode: Decode | None) -> Iterator[dict[str, Any]]:
        return self.rows(path, decode)


def _has(path: Path, *names: str) -> bool:
    """Whether the first object of a JSON file has some fields."""
    return set(names) <= first_object(path).keys()


_OWN: Final[Mapping[str, Reader]] = MappingProxyType(
    {
        "ATIF": _OwnReader(
            lambda path: str(first_object(path).get("schema_version", "")).startswith("ATIF-v1."), read_atif
        ),
        "Inspect": _OwnReader(lambda path: path.suffix == ".eval" or _has(path, "eval", "samples"), read_inspect),
        "verifiers": _OwnReader(
            lambda path: _has(path, "prompt", "completion", "reward") or is_trace(first_object(path)), read_verifiers
        ),
        "TRL": _OwnReader(is_trl, read_trl),
        "verl": _OwnReader(lambda path: _has(path, "input", "output", "score", "step"), read_verl),
        "slime or miles": _OwnReader(lambda path: path.suffix == ".pt", read_dump),
    }
)
"""Readers of torl by the names of their formats."""


@cache
def readers() -> Mapping[str, Reader]:
    """Return all readers by the names of their formats: torl's own, then readers of installed packages.

    Raises:
        ConfigError: A package adds something else, or a format that has a reader.
    """
    installed = plugins(_GROUP, _OWN).items()
    return {**_OWN, **{name: load_plugin(point, Reader) for name, point in installed}}  # type: ignore[type-abstract]


def format_names() -> str:
    """Return the names of all formats for a help text. No package is imported, and none is refused."""
    return ", ".join(dict.fromkeys([*_OWN, *plugin_names(_GROUP)]))


def foreign_format(path: Path) -> str | None:
    """Return the format of another library that a file has, as a key of `readers()`; None for others.

    Raises:
        ConfigError: An installed package adds an invalid reader.
        RecordError: The file cannot be read, or is a damaged parquet file.
    """
    with _reading(path, "cannot be opened"):
        open_file(path).close()  # not a named pipe, at which the readers would wait
    for name, reader in readers().items():
        with _reading(path, f"the reader of {name} failed"):
            if reader.matches(path):
                return name
    return None


def read_foreign(path: Path, decode: Decode | None = None) -> Iterator[dict[str, Any]]:
    """Yield the trajectories of another library's file as rows of a trajectory file.

    A decoder of the model's tokens (`model_decoder`) separates the turns in a file with one text for several.

    Raises:
        ConfigError: An installed package adds an invalid reader.
        RecordError: The file cannot be read, is in a format without a reader, or is damaged.
    """
    name = foreign_format(path)
    if name is None:
        raise RecordError(f"{path}: none of the formats {', '.join(readers())}")
    with _reading(path, f"not a file of {name}"):
        for row in readers()[name].read(path, decode):
            check_row(row, Row)
            yield row


@contextmanager
def _reading(path: Path, problem: str) -> Iterator[None]:
    """Report an exception as a `RecordError` with its place, if that is in another package."""
    try:
        yield
    except TorlError:
        raise
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror or str(error).strip()}") from error
    except (zipfile.BadZipFile, zlib.error) as error:
        raise RecordError(f"{path}: damaged: {error}") from error
    except Exception as error:
        cause = f"{type(error).__name__}: {error} {place_in_custom_code(error)}".rstrip()
        raise RecordError(f"{path}: {problem}: {cause}") from error
