"""Files and texts that others made: opened without waiting, and parsed without errors of the interpreter's stack.

Content that is far larger than its file is refused: some KB of compressed or columnar data can become many GB.
"""

import errno
import io
import json
import os
import stat
import tomllib
import zipfile
from collections.abc import Callable
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, Final

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


MAX_EXPANSION: Final = 200
"""Maximum size of the content as a multiple of the size of its file: texts become at most some 50 times smaller."""
FREE_BYTES: Final = 64 << 20
"""Content that is accepted regardless of the file's size, where it is in memory as a whole."""
FREE_STREAM_BYTES: Final = 256 << 20
"""Content that is accepted regardless of the file's size, where it is read piece by piece."""


def allowed_bytes(stored: int, free: int = FREE_BYTES) -> int:
    """Return the maximum size of the content of a number of stored bytes. Has the arguments of `require_proportion`."""
    return max(free, MAX_EXPANSION * stored)


def require_proportion(content: int, stored: int, free: int = FREE_BYTES) -> None:
    """Check the size of a file's content before it is made, or while it is read.

    Args:
        content: Bytes of the content, or of its part that is read so far.
        stored: Bytes of the file, or of the part with that content.
        free: Bytes of content that are always accepted.

    Raises:
        OSError: The content is too large for the file. `strerror` has the sizes and the remedy.
    """
    if content > allowed_bytes(stored, free):
        raise OSError(
            errno.EFBIG,
            f"its content has more than {MAX_EXPANSION} times its size ({content} bytes in {stored}); "
            "write it without compression and dictionaries if that is what it should be",
        )


def require_archive_proportion(file: IO[bytes]) -> None:
    """Check the sizes of all members of an opened zip file together; do nothing for other files.

    Raises:
        OSError: The content is too large for the file (`require_proportion`).
        zipfile.BadZipFile: The file is damaged.
    """
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            content = sum(member.file_size for member in archive.infolist())
        require_proportion(content, file.seek(0, io.SEEK_END))
    file.seek(0)


class BoundedReader(io.RawIOBase):
    """The bytes of a compressed file, which raises the error of `require_proportion` instead of reading too many."""

    def __init__(self, compressed: IO[bytes], decompressed: Any) -> None:
        """Read the bytes of `decompressed`, which reads those of `compressed`."""
        self._compressed, self._decompressed, self._count = compressed, decompressed, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count: int = self._decompressed.readinto(buffer)
        self._count += count
        require_proportion(self._count, self._compressed.tell(), FREE_STREAM_BYTES)
        return count
