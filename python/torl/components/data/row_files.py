"""Files with rows: opened and decompressed, parquet and .arrow files read; pointers of Git LFS are refused."""

import io
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeAlias

from torl.base.columnar import parquet_rows, stream_rows
from torl.base.errors import DataError
from torl.base.inputs import BoundedReader, open_file, reason
from torl.components.hub import RemoteFile
from torl.components.hub.dataset_files import COMPRESSIONS, file_format

RowFile: TypeAlias = Path | RemoteFile
"""A file on disk, or a file on the Hub that is read over the network."""
Row: TypeAlias = tuple[str, Any]
"""The location of a row ("train.jsonl, line 3") and its value, or the `InvalidRowError` that replaces the value."""
Fields: TypeAlias = Collection[str] | None
"""Names of the columns to read; None reads all. A reader may return more columns."""
_CODECS = dict(zip(COMPRESSIONS, ("gzip", "zstd"), strict=True))
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"  # the first bytes


@contextmanager
def opened_file(path: RowFile) -> Iterator[IO[bytes]]:
    """Open a file for reading, which is decompressed if its name has the suffix of a compression.

    Raises:
        DataError: A compressed file is damaged, or its content is far larger than the file.
    """
    compression = file_format(path.name)[1]
    if not compression:
        with path.open("rb") as file:
            yield file
        return
    import pyarrow

    with arrow_errors(path, compression), path.open("rb") as file:
        decompressed = pyarrow.CompressedInputStream(file, _CODECS[compression])
        yield io.BufferedReader(BoundedReader(file, decompressed))


@contextmanager
def arrow_errors(path: RowFile, kind: str) -> Iterator[None]:
    """Name the file in an error of the block, which reads it with pyarrow.

    Raises:
        DataError: The block raised such an error.
    """
    import pyarrow

    try:
        yield
    except ConnectionError:
        raise
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path}: not a readable {kind} file: {reason(error)}") from error


def require_content(file: RowFile) -> None:
    """Check that a file is not the pointer to itself that Git LFS leaves in a repository.

    Raises:
        DataError: The file is such a pointer.
    """
    if isinstance(file, Path):
        try:
            with open_file(file) as opened:
                is_pointer = opened.read(len(_LFS_POINTER)) == _LFS_POINTER
        except OSError as error:
            raise DataError(f"{file}: cannot be read: {error.strerror}") from error
        if is_pointer:
            raise DataError(f"{file}: a pointer of Git LFS, not the file: run `git lfs pull` in its repository")


def read_parquet(path: RowFile, fields: Fields) -> Iterator[Row]:
    """Yield the rows of a parquet file.

    Raises:
        DataError: The file is damaged, or its content is far larger than the file.
    """
    with arrow_errors(path, "parquet"), path.open("rb") as opened:
        for number, row in enumerate(parquet_rows(opened, fields), start=1):
            yield f"{path}, row {number}", row


def read_arrow(path: RowFile, fields: Fields) -> Iterator[Row]:
    """Yield the rows of a file that `save_to_disk` of `datasets` writes. Raises the errors of `read_parquet`."""
    with arrow_errors(path, "arrow"), path.open("rb") as opened:
        for number, row in enumerate(stream_rows(opened, fields), start=1):
            yield f"{path}, row {number}", row
