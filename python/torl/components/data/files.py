"""Readers of the rows of .jsonl, .json, .parquet, .csv and .arrow files.

JSON lines, CSV and the batches of parquet and arrow files (of `save_to_disk` of `datasets`) are streamed, so files may
exceed memory. A JSON list is loaded completely. A row that cannot be decoded is an `InvalidRowError`. Only an
unreadable file, or one whose content is far larger than itself, raises a `DataError`.
"""

import csv
import io
from codecs import BOM_UTF8
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, TypeAlias

from torl.base.columnar import parquet_rows, stream_rows
from torl.base.errors import DataError
from torl.base.inputs import BoundedReader, open_file, parse_json, reason
from torl.components.data.rows import InvalidRowError, NumberLiteral, describe
from torl.components.hub import DATASET_PREFIX, IN_PLACE_OF_NAME, RemoteFile, files_in, hub_errors, resolve_file
from torl.components.hub.datasets import COMPRESSIONS, FILE_SUFFIXES, file_format, is_readable

RowFile: TypeAlias = Path | RemoteFile
"""A file on disk, or a file on the Hub that is read over the network."""
Row: TypeAlias = tuple[str, Any]
"""The location of a row ("train.jsonl, line 3") and its value, or the `InvalidRowError` that replaces the value."""
Fields: TypeAlias = Collection[str] | None
"""Names of the columns to read; None reads all. A reader may return more columns."""
_CODECS = dict(zip(COMPRESSIONS, ("gzip", "zstd"), strict=True))
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"  # the first bytes


@contextmanager
def _opened_file(path: RowFile) -> Iterator[IO[bytes]]:
    """Open a file for reading, which is decompressed if its name has the suffix of a compression."""
    compression = file_format(path.name)[1]
    if not compression:
        with path.open("rb") as file:
            yield file
        return
    import pyarrow

    with _arrow_errors(path, compression), path.open("rb") as file:
        decompressed = pyarrow.CompressedInputStream(file, _CODECS[compression])
        yield io.BufferedReader(BoundedReader(file, decompressed))


@contextmanager
def _arrow_errors(path: RowFile, kind: str) -> Iterator[None]:
    """Convert an error of pyarrow, or of the file that it reads, to a `DataError`."""
    import pyarrow

    try:
        yield
    except ConnectionError:
        raise
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path}: not a readable {kind} file: {reason(error)}") from error


def _require_content(file: RowFile) -> None:
    """Raise `DataError` if a file is the pointer to itself that Git LFS leaves in a repository."""
    if isinstance(file, Path):
        try:
            with open_file(file) as opened:
                is_pointer = opened.read(len(_LFS_POINTER)) == _LFS_POINTER
        except OSError as error:
            raise DataError(f"{file}: cannot be read: {error.strerror}") from error
        if is_pointer:
            raise DataError(f"{file}: a pointer of Git LFS, not the file: run `git lfs pull` in its repository")


DatasetFinder: TypeAlias = Callable[[str, str, Sequence[str]], Sequence[RowFile]]
"""A function of the name of a dataset on the Hub, a split, and patterns, that returns the files."""

_LISTS = ("data", "rows", "examples", "problems", "questions", "items", "instances", "train")
"""Names of the rows in a .json file that is an object; an object with other lists is a row."""
_MAX_CSV_FIELD = 2**31 - 1  # characters; the default of 131,072 ends the file at a longer field


def _read_json_lines(path: RowFile, fields: Fields) -> Iterator[Row]:
    with _opened_file(path) as file:
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
    with _opened_file(path) as file:
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
        _opened_file(path) as opened,
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


def _read_columns(
    kind: str, read: Callable[[IO[bytes], Fields], Iterator[Any]], path: RowFile, fields: Fields
) -> Iterator[Row]:
    with _arrow_errors(path, kind), path.open("rb") as opened:
        for number, row in enumerate(read(opened, fields), start=1):
            yield f"{path}, row {number}", row


_READERS: Mapping[str, Callable[[RowFile, Fields], Iterator[Row]]] = MappingProxyType(
    {
        ".jsonl": _read_json_lines,
        ".json": _read_json,
        ".parquet": partial(_read_columns, "parquet", parquet_rows),
        ".csv": _read_csv,
        ".arrow": partial(_read_columns, "arrow", stream_rows),
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
        _require_content(file)
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
        message = f"not UTF-8: {error.reason} at byte {error.start}"
        raise InvalidRowError(location, "not_utf8", message) from error


def _parse_json(location: str, text: str) -> Any:
    # Numbers keep their spelling: 0.10 must not become 0.1, nor 1e400 infinity. NaN stands for a missing value: pandas
    # writes it.
    try:
        return parse_json(text, parse_float=NumberLiteral, parse_int=NumberLiteral, parse_constant=lambda _: None)
    except ValueError as error:
        raise InvalidRowError(location, "not_json", f"not valid JSON: {error}") from error
