"""Memory and temporary directories of a process."""

import contextlib
import ctypes
import fcntl
import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path


def trim_heap() -> None:
    """Return the free memory in glibc's heap to the system, also between blocks in use. Takes milliseconds."""
    ctypes.CDLL(None).malloc_trim(0)


def exclude_from_collection() -> None:
    """Exclude all present objects from garbage collection, after collecting it once.

    Imported libraries have millions, which live as long as the process and take up to a second in each collection.
    Present reference cycles are never freed: call it where all present objects live as long as the process.
    """
    gc.collect()
    gc.freeze()


@contextlib.contextmanager
def uncollected_imports() -> Iterator[None]:
    """Import large libraries in this block without garbage collection, and exclude all present objects from later ones.

    Collections would take a fifth of the time of the imports, and find nothing. Earlier garbage is freed first.
    """
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


class ScratchDirectory:
    """A private temporary directory. Open and close it, or use it as a context manager.

    It is locked while its process lives, so that the next process that opens one with the same prefix can recognize and
    remove the directory of a killed process.
    """

    def __init__(self, prefix: str) -> None:
        """Choose the beginning of its name, such as "torl-engine-"."""
        self._prefix = prefix
        self._path: Path | None = None
        self._lock = -1

    def open(self) -> Path:
        """Create the directory unless it is open, and remove directories of dead processes."""
        self._remove_abandoned()
        while self._path is None:
            path = Path(tempfile.mkdtemp(prefix=self._prefix))
            lock = _open(path)
            if lock is not None:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if path.exists():
                    self._path, self._lock = path, lock
                else:  # another starting process removed it before it was locked
                    os.close(lock)
        return self._path

    def close(self) -> None:
        """Remove the directory with its contents. Safe to call twice."""
        path, self._path = self._path, None
        if path is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(self._lock)

    def _remove_abandoned(self) -> None:
        for path in Path(tempfile.gettempdir()).glob(f"{self._prefix}*"):
            lock = _open(path)
            if lock is None:
                continue
            with contextlib.suppress(BlockingIOError):  # its process lives
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            os.close(lock)

    def __enter__(self) -> Path:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()


def _open(path: Path) -> int | None:
    """Open a directory; return None if it belongs to another user or no longer exists."""
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
