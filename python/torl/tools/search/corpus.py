"""A file of passages, one JSON object on each line, read where a line begins."""

import json
import mmap
from collections.abc import Iterator
from pathlib import Path

from torl.errors import DataError


class Corpus:
    """The passages of a file, by their numbers. The file is mapped, not read: only what is looked at is in memory.

    A passage is `contents`, whose first line is its title (Search-R1's corpora), or `title` and `text`.
    """

    def __init__(self, path: Path) -> None:
        """Map the file.

        Raises:
            DataError: it cannot be read, or is empty.
        """
        self.path = path
        try:
            with path.open("rb") as file:
                self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: cannot be read as a corpus: {error}") from error

    def close(self) -> None:
        """Let go of the file."""
        self._bytes.close()

    def scan(self) -> Iterator[tuple[int, str]]:
        """Where each passage begins, and what it says; blank lines are none.

        Raises:
            DataError: a line is no passage.
        """
        start = number = 0
        while start < len(self._bytes):
            stop = self._bytes.find(b"\n", start) + 1 or len(self._bytes)
            number += 1
            if line := self._bytes[start:stop].strip():
                yield start, self._contents(line, f"line {number}")
            start = stop

    def read(self, start: int) -> str:
        """The passage that begins at this byte."""
        stop = self._bytes.find(b"\n", start)
        return self._contents(self._bytes[start : len(self._bytes) if stop < 0 else stop], f"byte {start}")

    def _contents(self, line: bytes, place: str) -> str:
        try:
            passage = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{self.path}: {place}: no JSON: {error}") from error
        fields = passage if isinstance(passage, dict) else {}
        if isinstance(contents := fields.get("contents"), str):
            return contents
        if isinstance(text := fields.get("text"), str):
            return f"{fields.get('title') or ''}\n{text}"
        raise DataError(f"{self.path}: {place}: a passage needs the field 'contents', or 'title' and 'text'")
