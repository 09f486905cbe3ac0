"""Files and texts that others made: opened without waiting, and parsed without errors of the interpreter's stack."""

import errno
import json
import os
import stat
import tomllib
from collections.abc import Callable
from io import BufferedReader
from pathlib import Path
from typing import Any, Final

_KINDS: Final[tuple[tuple[Callable[[int], bool], str], ...]] = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def open_file(path: Path | str) -> BufferedReader:
    """Open a regular file for reading. Never waits, as opening a named pipe does.

    Raises:
        OSError: The file cannot be opened, or is of another kind, which `strerror` names.
    """
    stat_file(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _require_regular(os.fstat(descriptor).st_mode, path)  # it may have been replaced in between
    except OSError:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def stat_file(path: Path | str) -> os.stat_result:
    """Return the state of a regular file. Raises the errors of `open_file`."""
    found = os.stat(path)
    _require_regular(found.st_mode, path)
    return found


def read_file(path: Path) -> bytes:
    """Return the content of a regular file. Raises the errors of `open_file`."""
    with open_file(path) as file:
        return file.read()


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML.

    Raises:
        ValueError: The text is not valid TOML.
    """
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def parse_json(text: str | bytes, **options: Any) -> Any:
    """Parse JSON, bytes as UTF-8 with or without a byte order mark, with the options of `json.loads`.

    Raises:
        ValueError: The text is not valid JSON.
    """
    try:
        # json guesses the encoding of bytes.
        return json.loads(decode_utf8(text) if isinstance(text, bytes) else text, **options)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def reason(error: Exception) -> str:
    """Return the reason of an error, for a message that names the file itself."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def decode_utf8(data: bytes) -> str:
    """Decode a text with or without a byte order mark, which editors on Windows write.

    Raises:
        ValueError: The text is not UTF-8.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: byte {error.start} is 0x{data[error.start]:02x}") from None


def _require_regular(mode: int, path: Path | str) -> None:
    if not stat.S_ISREG(mode):
        kind = next((name for matches, name in _KINDS if matches(mode)), "of an unknown kind")
        raise OSError(errno.EINVAL, f"it is {kind}, not a file", str(path))
