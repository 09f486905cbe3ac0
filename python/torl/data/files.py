"""Readers of the rows of .jsonl, .json and .parquet files.

JSON lines and parquet row groups are streamed, so files may exceed memory. A JSON list is loaded completely.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from torl.errors import DataError
from torl.hub import RemoteFile

RowFile: TypeAlias = Path | RemoteFile
"""A file on disk, or a file on the Hub that is read over the network."""
Row: TypeAlias = tuple[str, Any]
"""The location of a row ("train.jsonl, line 3") and its value: an error if the line cannot be read."""

_BATCH_SIZE = 1_000  # parquet rows per batch, to bound the memory of their objects


def _read_json_lines(path: RowFile) -> Iterator[Row]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            location = f"{path}, line {number}"
            value: Any
            try:
                text = _decode(location, line.rstrip(b"\r\n"))
                if number == 1:
                    text = text.removeprefix("\ufeff")
                if not text.strip():
                    continue
                value = _parse_json(location, text)
            except DataError as error:
                value = error
            yield location, value


def _read_json_list(path: RowFile) -> Iterator[Row]:
    rows = _parse_json(str(path), _decode(str(path), path.read_bytes()).removeprefix("\ufeff"))
    if not isinstance(rows, list):
        raise DataError(f"{path}: must contain a list of problems, got {describe(rows)}")
    for number, row in enumerate(rows, start=1):
        yield f"{path}, row {number}", row


def _read_parquet(path: RowFile) -> Iterator[Row]:
    import pyarrow
    import pyarrow.parquet

    try:
        with path.open("rb") as opened, pyarrow.parquet.ParquetFile(opened) as file:
            number = 0
            for batch in file.iter_batches(batch_size=_BATCH_SIZE):
                for row in batch.to_pylist():
                    number += 1
                    yield f"{path}, row {number}", row
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path}: not a readable parquet file: {error}") from error


READERS: Mapping[str, Callable[[RowFile], Iterator[Row]]] = MappingProxyType(
    {".jsonl": _read_json_lines, ".json": _read_json_list, ".parquet": _read_parquet}
)


def _decode(location: str, data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{location}: not UTF-8: {error.reason} at byte {error.start}") from error


def _parse_json(location: str, text: str) -> Any:
    # Numbers keep their spelling: 0.10 must not become 0.1, nor 1e400 infinity.
    try:
        return json.loads(text, parse_float=NumberLiteral, parse_int=NumberLiteral, parse_constant=_refuse_constant)
    except (json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"{location}: not valid JSON: {error}") from error
    except _ConstantError as error:
        raise DataError(f"{location}: not valid JSON: {error} is not a JSON number") from error


class NumberLiteral(str):
    """A JSON number in its original spelling."""


class _ConstantError(Exception):
    pass


def _refuse_constant(name: str) -> Any:
    raise _ConstantError(name)


def describe(value: Any) -> str:
    """Return the type of a JSON value, for error messages."""
    kinds = {dict: "an object", list: "a list", bool: "true or false", type(None): "null", str: "text"}
    return kinds.get(type(value), "a number")
