"""Files of other libraries as files that the viewer reads, in the user's cache."""

import hashlib
import os
from pathlib import Path

from torl.base.errors import ConfigError
from torl.base.version import __version__
from torl.run.records.files import atomic_write
from torl.run.records.rows import encode_row
from torl_lab.exchange import foreign_format, model_decoder, read_foreign
from torl_sandbox.paths import cache_directory


def own_file(path: Path, tokenizer: str | None = None) -> Path:
    """Return a file of torl with the trajectories of a file; directories and files of torl are returned as they are.

    The file is written again when the original has changed.

    Args:
        path: File or directory.
        tokenizer: Model whose tokenizer separates the texts of several turns. Optional.

    Raises:
        ConfigError: The user has no cache directory.
        DataError: The tokenizer cannot be read.
        RecordError: The file is damaged.
    """
    if not path.is_file() or foreign_format(path) is None:
        return path
    try:
        directory = cache_directory("view")
    except RuntimeError as error:
        raise ConfigError(f"no cache directory for {path}: {error}; use torl convert") from error
    stat = path.stat()
    identity = f"{path.resolve()}\n{stat.st_size}\n{stat.st_mtime_ns}\n{tokenizer}\n{__version__}"
    made = directory / hashlib.sha256(os.fsencode(identity)).hexdigest()[:16] / f"{path.stem}.jsonl"
    if not made.exists():
        decode = None if tokenizer is None else model_decoder(tokenizer)
        made.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(made) as file:
            for row in read_foreign(path, decode):
                file.write(encode_row(row))
    return made
