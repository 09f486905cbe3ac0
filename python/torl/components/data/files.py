"""Readers of the rows of .jsonl, .json, .parquet, .csv and .arrow files.

JSON lines, CSV and the batches of parquet and arrow files are streamed, so files may exceed memory. A JSON list is
loaded completely. A row that cannot be decoded is an `InvalidRowError`; only an unreadable file raises an error.
"""

import csv
import io
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from datetime import date, time, timedelta
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from torl.base.errors import DataError
from torl.base.inputs import parse_json
from torl.components.data.row_files import Fields, Row, RowFile, opened_file, read_arrow, read_parquet, require_content
from torl.components.hub import DATASET_PREFIX, IN_PLACE_OF_NAME, files_in, hub_errors, resolve_file
from torl.components.hub.dataset_files import FILE_SUFFIXES, file_format, is_readable

DatasetFinder: TypeAlias = Callable[[str, str, Sequence[str]], Sequence[RowFile]]
"""A function of the name of a dataset on the Hub, a split, and patterns, that returns the files."""

_TIMES = (date, time, timedelta)  # a datetime is a date
_LISTS = ("data", "rows", "examples", "problems", "questions", "items", "instances", "train")
"""Names of the rows in a .json file that is an object; an object with other lists is a row."""
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
    with opened_file(path) as file:
        yield from _rows_of_lines(path, file)


def _rows_of_lines(path: RowFile, lines: Iterable[bytes]) -> Iterator[Row]:
    for number, line in enumerate(lines, start=1):
        location = f"{path}, line {number}"
        try:
            text = _decode(location, line.rstrip(b"\r\n"))
            if number == 1:
                text = text.removeprefix("\ufeff")
            if text.strip():
                yield location, _parse_json(location, text)
        except InvalidRowError as invalid:
            yield location, invalid


def _read_json(path: RowFile, fields: Fields) -> Iterator[Row]:
    with opened_file(path) as file:
        first, second = file.readline(), file.readline()
        if second.strip() and _is_object(first):  # `to_json` of `datasets` writes JSON lines
            yield from _rows_of_lines(path, chain((first, second), file))
            return
        text = _decode(str(path), (first + second + file.read()).removeprefix(BOM_UTF8))
    rows = _parse_json(str(path), text)
    del text  # twice the size of the rows, while they are read
    if isinstance(rows, dict):
        lists = [name for name, value in rows.items() if isinstance(value, list)]
        rows = rows[lists[0]] if len(lists) == 1 and lists[0] in _LISTS else [rows]
    if not isinstance(rows, list):
        raise DataError(f"{path}: must contain a list of rows, got {describe(rows)}")
    for number, row in enumerate(rows, start=1):
        yield f"{path}, row {number}", row


def _is_object(line: bytes) -> bool:
    try:
        return line.removeprefix(BOM_UTF8).lstrip().startswith(b"{") and isinstance(parse_json(line), dict)
    except ValueError:
        return False


def _read_csv(path: RowFile, fields: Fields) -> Iterator[Row]:
    csv.field_size_limit(_MAX_CSV_FIELD)
    # A byte that is not UTF-8 becomes a lone surrogate, which makes the field invalid instead of the file.
    with (
        opened_file(path) as opened,
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


_READERS: Mapping[str, Callable[[RowFile, Fields], Iterator[Row]]] = MappingProxyType(
    {
        ".jsonl": _read_json_lines,
        ".json": _read_json,
        ".parquet": read_parquet,
        ".csv": _read_csv,
        ".arrow": read_arrow,
    }
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
    if located.is_dir() and not is_readable(located.name):
        return files_in(located, split or "train", patterns)
    if not is_readable(located.name):
        suffixes = ", ".join(FILE_SUFFIXES)
        raise DataError(f"{path}: the name must end in {suffixes}, got {located.suffix!r}; .gz or .zst may follow text")
    if not located.is_file():
        raise DataError(f"{path}: not a file")
    return [located]


def numbered_rows(files: Sequence[RowFile], fields: Fields = None) -> Iterator[Row]:
    """Yield the rows of all files. Row numbers continue from file to file."""
    number = 0
    for file in files:
        require_content(file)
        with (
            nullcontext()
            if isinstance(file, Path)
            else hub_errors(f"{DATASET_PREFIX}{file.dataset}", "dataset", IN_PLACE_OF_NAME)
        ):
            for location, row in _READERS[file_format(file.name)[0]](file, fields):
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
        return parse_json(text, parse_float=NumberLiteral, parse_int=NumberLiteral, parse_constant=lambda _: None)
    except ValueError as error:
        raise InvalidRowError(location, "not_json", f"not valid JSON: {error}") from error


def describe(value: Any) -> str:
    """Return the type of a value of a row, for error messages."""
    kinds = {dict: "an object", list: "a list", bool: "true or false", type(None): "null", str: "text", bytes: "bytes"}
    return kinds.get(type(value)) or ("a date or a time" if isinstance(value, _TIMES) else "a number")
