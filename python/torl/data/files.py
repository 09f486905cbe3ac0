"""Readers of the rows of .jsonl, .json and .parquet files.

JSON lines and parquet row groups are streamed, so files may exceed memory. A JSON list is loaded completely.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from torl.errors import DataError
from torl.hub import DATASET_PREFIX, IN_PLACE_OF_NAME, RemoteFile, files_in, hub_errors, name_hint
from torl.paths import resolve_path

RowFile: TypeAlias = Path | RemoteFile
"""A file on disk, or a file on the Hub that is read over the network."""
Row: TypeAlias = tuple[str, Any]
"""The location of a row ("train.jsonl, line 3") and its value: an error if the line cannot be read."""

_CONVERSIONS = {
    ".csv": '; convert it: python -c "import pyarrow.csv as c, pyarrow.parquet as p, sys; '
    'p.write_table(c.read_csv(sys.argv[1]), sys.argv[2])" FILE.csv FILE.parquet'
}
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


def find_files(
    path: str | Path, split: str | None, find_dataset: Callable[[str, str], Sequence[RowFile]]
) -> Sequence[RowFile]:
    """Return the files of a path: a file, a directory in the layout of the Hub, or a dataset on the Hub.

    Args:
        path: Path on disk, path inside the package (`torl:`), or name of a dataset on the Hub (`hf:`).
        split: Split of a directory or a dataset. The default is "train".
        find_dataset: Function that returns the files of a dataset on the Hub.

    Raises:
        DataError: The path does not exist, or is a file in another format.
    """
    if str(path).startswith(DATASET_PREFIX):
        return find_dataset(str(path), split or "train")
    try:
        located = resolve_path(path)
    except DataError as error:
        raise DataError(f"{error}{name_hint(str(path))}") from error
    if located.is_dir() and located.suffix not in READERS:
        return files_in(located, split or "train")
    if located.suffix not in READERS:
        conversion = _CONVERSIONS.get(located.suffix, "")
        raise DataError(f"{path}: problem files must end in {', '.join(READERS)}, got {located.suffix!r}{conversion}")
    if not located.is_file():
        raise DataError(f"{path}: not a file")
    return [located]


def numbered_rows(files: Sequence[RowFile]) -> Iterator[Row]:
    """Yield the rows of all files. Row numbers continue from file to file."""
    number = 0
    for file in files:
        with (
            nullcontext()
            if isinstance(file, Path)
            else hub_errors(f"{DATASET_PREFIX}{file.dataset}", "dataset", IN_PLACE_OF_NAME)
        ):
            for location, row in READERS[file.suffix](file):
                number += 1
                yield location if len(files) == 1 else f"{file}, row {number}", row


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


def plain(value: Any) -> Any:
    """Convert the number literals in a value to numbers."""
    if isinstance(value, NumberLiteral):
        return json.loads(value)
    if isinstance(value, dict):
        return {name: plain(member) for name, member in value.items()}
    return [plain(member) for member in value] if isinstance(value, list) else value


class _ConstantError(Exception):
    pass


def _refuse_constant(name: str) -> Any:
    raise _ConstantError(name)


def describe(value: Any) -> str:
    """Return the type of a JSON value, for error messages."""
    kinds = {dict: "an object", list: "a list", bool: "true or false", type(None): "null", str: "text"}
    return kinds.get(type(value), "a number")
