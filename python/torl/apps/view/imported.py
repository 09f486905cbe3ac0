"""Files of other libraries as files that the viewer reads, in the user's cache."""

import hashlib
import os
from pathlib import Path

from torl.errors import ConfigError
from torl.paths import cache_directory
from torl.records.exchange import foreign_format, read_foreign
from torl.records.files import atomic_write
from torl.records.rows import encode_row


def own_file(path: Path) -> Path:
    """Return a file of torl with the trajectories of a file; directories and files of torl are returned as they are.

    The file is written again when the original has changed.

    Raises:
        ConfigError: The user has no cache directory.
        RecordError: The file is damaged.
    """
    if not path.is_file() or foreign_format(path) is None:
        return path
    try:
        directory = cache_directory("view")
    except RuntimeError as error:
        raise ConfigError(f"no cache directory for {path}: {error}; use torl convert") from error
    stat = path.stat()
    identity = f"{path.resolve()}\n{stat.st_size}\n{stat.st_mtime_ns}"
    made = directory / hashlib.sha256(os.fsencode(identity)).hexdigest()[:16] / f"{path.stem}.jsonl"
    if not made.exists():
        made.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(made) as file:
            for row in read_foreign(path):
                file.write(encode_row(row))
    return made
