"""The heap of a process."""

import contextlib
import ctypes
import gc
from collections.abc import Iterator


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
