"""Atomic file writes, with errors that name the file."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torl.errors import RecordError


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[Any]:
    """Open a temporary file that replaces `path` once it is on disk, and is removed on failure.

    Raises:
        RecordError: The file could not be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with record_errors(path):
            with temporary.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def append_atomically(path: Path, data: bytes) -> None:
    """Append all of `data` to a file, or nothing.

    Raises:
        RecordError: The file could not be written.
    """
    with record_errors(path), path.open("ab", buffering=0) as file:
        write_or_roll_back(file.fileno(), data)


def write_or_roll_back(descriptor: int, data: bytes) -> None:
    """Write all of `data`; on failure, as on a full disk, remove the part already written.

    Raises:
        OSError: The data could not be written.
    """
    written = os.write(descriptor, data)
    if written == len(data):
        return
    try:
        while written < len(data):
            written += os.write(descriptor, data[written:])
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
        raise


@contextlib.contextmanager
def record_errors(path: Path) -> Iterator[None]:
    """Turn an OSError into a RecordError that names the file.

    Raises:
        RecordError: The block raised an OSError.
    """
    try:
        yield
    except OSError as error:
        raise RecordError(f"{error.filename or path}: cannot be written: {error.strerror}") from error
