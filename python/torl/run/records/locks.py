"""Locks of what a process writes, so that no second one writes it. The kernel releases those of a killed process."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torl.base.errors import ConfigError
from torl.run.records.files import record_errors

_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
"""Errors of file systems without locks, as some clusters mount theirs: there, nothing protects an output."""


@contextmanager
def locked_directory(directory: Path, writer: str) -> Iterator[None]:
    """Create a directory, if it is missing, and hold its lock.

    Args:
        directory: Directory.
        writer: The writer in the error, such as "run".

    Raises:
        ConfigError: Another process holds the lock.
        RecordError: The directory cannot be created or read.
    """
    with record_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(directory, os.O_RDONLY)
    with _locked(descriptor, directory, writer):
        yield


def is_locked(directory: Path) -> bool:
    """Whether a process of this machine holds the lock of a directory, according to the kernel's list.

    Nothing tries the lock: a run that started at that moment would be refused.
    """
    status = directory.stat()
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    return any(place in line.split() for line in Path("/proc/locks").read_text().splitlines())


@contextmanager
def locked_file(path: Path, writer: str) -> Iterator[None]:
    """Hold the lock of a file, which is a hidden file next to it: a file that is replaced cannot be locked itself.

    Args:
        path: File. Its directory is created if it is missing.
        writer: The writer in the error, such as "command".

    Raises:
        ConfigError: Another process holds the lock.
        RecordError: The hidden file cannot be created.
    """
    lock = path.with_name(f".{path.name}.lock")
    with record_errors(lock):
        lock.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
    with _locked(descriptor, path, writer):
        yield


@contextmanager
def _locked(descriptor: int, path: Path, writer: str) -> Iterator[None]:
    try:
        with record_errors(path):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError(f"{path} is being written by another {writer}") from None
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
        yield
    finally:
        os.close(descriptor)
