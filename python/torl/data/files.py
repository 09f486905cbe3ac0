"""The rows of .jsonl, .json and .parquet files, one after the other.

Files of JSON lines may be larger than the memory, and parquet files in row groups that are not; a list of JSON is read
whole.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from torl.errors import DataError
from torl.hub import RemoteFile

RowFile: TypeAlias = Path | RemoteFile
"""A file on disk, or one of the hub that is read over the network."""
Row: TypeAlias = tuple[str, Any]
"""Where the row stands ("train.jsonl, line 3") and what stands there."""

_ROWS_AT_ONCE = 1_000  # of a parquet file: bounds the memory that they take as objects


def _read_json_lines(path: RowFile) -> Iterator[Row]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            place = f"{path}, line {number}"
            text = _decode(place, line.rstrip(b"\r\n"))
            if number == 1:
                text = text.removeprefix("\ufeff")
            if not text.strip():
                continue
            yield place, _parse_json(place, text)


def _read_json_list(path: RowFile) -> Iterator[Row]:
    rows = _parse_json(str(path), _decode(str(path), path.read_bytes()).removeprefix("\ufeff"))
    if not isinstance(rows, list):
        raise DataError(f"{path}: must hold a list of problems, not {describe(rows)}")
    for number, row in enumerate(rows, start=1):
        yield f"{path}, row {number}", row


def _read_parquet(path: RowFile) -> Iterator[Row]:
    import pyarrow
    import pyarrow.parquet

    try:
        with path.open("rb") as opened, pyarrow.parquet.ParquetFile(opened) as file:
            number = 0
            for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE):
                for row in batch.to_pylist():
                    number += 1
                    yield f"{path}, row {number}", row
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path}: not a readable parquet file: {error}") from error


READERS: Mapping[str, Callable[[RowFile], Iterator[Row]]] = MappingProxyType(
    {".jsonl": _read_json_lines, ".json": _read_json_list, ".parquet": _read_parquet}
)


def _decode(place: str, data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{place}: not UTF-8: {error.reason} at byte {error.start}") from error


def _parse_json(place: str, text: str) -> Any:
    # Numbers keep their spelling: an answer of 0.10 must not become 0.1, nor 1e400 infinity.
    try:
        return json.loads(text, parse_float=NumberLiteral, parse_int=NumberLiteral, parse_constant=_refuse_constant)
    except (json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"{place}: not valid JSON: {error}") from error
    except _ConstantError as error:
        raise DataError(f"{place}: not valid JSON: {error} is not a number of JSON") from error


class NumberLiteral(str):
    """A JSON number as it was written."""


class _ConstantError(Exception):
    pass


def _refuse_constant(name: str) -> Any:
    raise _ConstantError(name)


def describe(value: Any) -> str:
    """What a value of JSON is, for an error."""
    kinds = {dict: "an object", list: "a list", bool: "true or false", type(None): "null", str: "text"}
    return kinds.get(type(value), "a number")
