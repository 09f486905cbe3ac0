"""Writing files so that they are whole or as they were, and saying what went wrong."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torl.errors import RecordError


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[Any]:
    """A file to write; it takes the place of `path` when all is on the disk, and is removed if that fails.

    Raises:
        RecordError: it could not be written.
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
    """Add `data` to the end of a file: all of it, or nothing.

    Raises:
        RecordError: it could not be written.
    """
    with record_errors(path), path.open("ab", buffering=0) as file:
        write_or_roll_back(file.fileno(), data)


def write_or_roll_back(descriptor: int, data: bytes) -> None:
    """Write all of `data`, or as if nothing had been: a part that fitted on a full disk is taken back.

    Raises:
        OSError: it could not be written.
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
    """Turns an OSError into a RecordError that names the file.

    Raises:
        RecordError: what is done inside cannot be done.
    """
    try:
        yield
    except OSError as error:
        raise RecordError(f"{error.filename or path}: cannot be written: {error.strerror}") from error
