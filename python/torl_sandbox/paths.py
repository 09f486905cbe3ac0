"""The user's cache directory, which torl shares."""

import os
from pathlib import Path


def cache_directory(kind: str) -> Path:
    """Return `torl/KIND` in the user's cache directory, which may not exist yet.

    Raises:
        RuntimeError: The user has no home directory, and XDG_CACHE_HOME is not set.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    located = Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache"
    return located / "torl" / kind
