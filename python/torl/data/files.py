"""Readers of the rows of .jsonl, .json, .parquet and .csv files.

JSON lines, CSV and parquet row groups are streamed, so files may exceed memory. A JSON list is loaded completely. A row
that cannot be decoded is an `InvalidRowError`; only a file that cannot be read raises an error.
"""

import csv
import io
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from torl.errors import DataError
from torl.hub import DATASET_PREFIX, IN_PLACE_OF_NAME, RemoteFile, files_in, hub_errors, resolve_file

RowFile: TypeAlias = Path | RemoteFile
"""A file on disk, or a file on the Hub that is read over the network."""
Row: TypeAlias = tuple[str, Any]
"""The location of a row ("train.jsonl, line 3") and its value, or the `InvalidRowError` that replaces the value."""
Fields: TypeAlias = Collection[str] | None
"""Names of the columns to read; None reads all. A reader may return more columns."""
DatasetFinder: TypeAlias = Callable[[str, str, Sequence[str]], Sequence[RowFile]]
"""A function of the name of a dataset on the Hub, a split, and patterns, that returns the files."""

_BATCH_SIZE = 1_000  # parquet rows per batch, to bound the memory of their objects
_MAX_CSV_FIELD = 2**31 - 1  # characters; the default of 131,072 ends the file at a longer field


class InvalidRowError(DataError):
    """A row that is not a problem. The message has its location and the reason."""

    def __init__(self, location: str, reason: str, message: str) -> None:
        """Describe the row.

        Args:
            location: Location of the row.
            reason: Short name of the reason, by which such rows are counted.
            message: The reason in full.
        """
        super().__init__(f"{location}: {message}")
        self.location, self.reason = location, reason


class SkippedRowError(InvalidRowError):
    """A row that is left out on purpose: a copy, or a row that a filter excludes."""


class NumberLiteral(str):
    """A JSON number in its original spelling."""


def _read_json_lines(path: RowFile, fields: Fields) -> Iterator[Row]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            location = f"{path}, line {number}"
            try:
                text = _decode(location, line.rstrip(b"\r\n"))
                if number == 1:
                    text = text.removeprefix("\ufeff")
                if text.strip():
                    yield location, _parse_json(location, text)
            except InvalidRowError as invalid:
                yield location, invalid


def _read_json_list(path: RowFile, fields: Fields) -> Iterator[Row]:
    rows = _parse_json(str(path), _decode(str(path), path.read_bytes()).removeprefix("\ufeff"))
    if not isinstance(rows, list):
        raise DataError(f"{path}: must contain a list of problems, got {describe(rows)}")
    for number, row in enumerate(rows, start=1):
        yield f"{path}, row {number}", row


def _read_parquet(path: RowFile, fields: Fields) -> Iterator[Row]:
    import pyarrow
    import pyarrow.parquet

    try:
        with path.open("rb") as opened, pyarrow.parquet.ParquetFile(opened) as file:
            names = None if fields is None else [name for name in file.schema_arrow.names if name in fields]
            number = 0
            for batch in file.iter_batches(batch_size=_BATCH_SIZE, columns=names):
                for row in _with_short_floats(batch).to_pylist():
                    number += 1
                    yield f"{path}, row {number}", row
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path}: not a readable parquet file: {error}") from error


def _with_short_floats(batch: Any) -> Any:
    """Return a batch with 32-bit floats as they were written: as 64 bits, 33.3 would be 33.29999923706055."""
    import pyarrow

    if not any(column.type == pyarrow.float32() for column in batch.columns):
        return batch
    columns = [
        column.cast(pyarrow.string()).cast(pyarrow.float64()) if column.type == pyarrow.float32() else column
        for column in batch.columns
    ]
    return pyarrow.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _read_csv(path: RowFile, fields: Fields) -> Iterator[Row]:
    csv.field_size_limit(_MAX_CSV_FIELD)
    # A byte that is not UTF-8 becomes a lone surrogate, which makes the field invalid instead of the file.
    with (
        path.open("rb") as opened,
        io.TextIOWrapper(opened, encoding="utf-8-sig", errors="surrogateescape", newline="") as file,
    ):
        reader = csv.DictReader(file)
        try:
            for number, row in enumerate(reader, start=1):
                location = f"{path}, row {number}"
                surplus = row.pop(None, None)
                if surplus is not None:
                    yield location, InvalidRowError(location, "surplus_fields", "has more fields than the header")
                else:
                    yield location, row
        except csv.Error as error:
            raise DataError(f"{path}: not a readable CSV file: {error}") from error


READERS: Mapping[str, Callable[[RowFile, Fields], Iterator[Row]]] = MappingProxyType(
    {".jsonl": _read_json_lines, ".json": _read_json_list, ".parquet": _read_parquet, ".csv": _read_csv}
)
"""Readers by the suffix of a file. The second argument selects columns."""


def find_files(
    path: str, split: str | None, find_dataset: DatasetFinder, patterns: Sequence[str] = ()
) -> Sequence[RowFile]:
    """Return the files of a path: a file, a directory in the layout of the Hub, or a dataset on the Hub.

    Args:
        path: Path on disk, path inside the package (`torl:`), or name of a dataset on the Hub (`hf:`).
        split: Split of a directory or a dataset. The default is "train".
        find_dataset: Function that returns the files of a dataset on the Hub.
        patterns: Patterns that select files of a directory or a dataset instead of a split.

    Raises:
        DataError: The path does not exist, or is a file in another format.
    """
    if path.startswith(DATASET_PREFIX):
        return find_dataset(path, split or "train", patterns)
    located = resolve_file(path)
    if located.is_dir() and located.suffix not in READERS:
        return files_in(located, split or "train", patterns)
    if located.suffix not in READERS:
        raise DataError(f"{path}: problem files must end in {', '.join(READERS)}, got {located.suffix!r}")
    if not located.is_file():
        raise DataError(f"{path}: not a file")
    return [located]


def numbered_rows(files: Sequence[RowFile], fields: Fields = None) -> Iterator[Row]:
    """Yield the rows of all files. Row numbers continue from file to file."""
    number = 0
    for file in files:
        with (
            nullcontext()
            if isinstance(file, Path)
            else hub_errors(f"{DATASET_PREFIX}{file.dataset}", "dataset", IN_PLACE_OF_NAME)
        ):
            for location, row in READERS[file.suffix](file, fields):
                number += 1
                yield location if len(files) == 1 else f"{file}, row {number}", row


def _decode(location: str, data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        reason = f"not UTF-8: {error.reason} at byte {error.start}"
        raise InvalidRowError(location, "not_utf8", reason) from error


def _parse_json(location: str, text: str) -> Any:
    # Numbers keep their spelling: 0.10 must not become 0.1, nor 1e400 infinity. NaN stands for a missing value: pandas
    # writes it.
    try:
        return json.loads(text, parse_float=NumberLiteral, parse_int=NumberLiteral, parse_constant=lambda _: None)
    except (json.JSONDecodeError, RecursionError) as error:
        raise InvalidRowError(location, "not_json", f"not valid JSON: {error}") from error


def describe(value: Any) -> str:
    """Return the type of a JSON value, for error messages."""
    kinds = {dict: "an object", list: "a list", bool: "true or false", type(None): "null", str: "text"}
    return kinds.get(type(value), "a number")
