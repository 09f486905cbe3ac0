"""The proportion of content and size that is accepted of compressed and columnar files: some KB can become many GB."""

import errno
import io
import zipfile
from typing import IO, Any, Final

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
