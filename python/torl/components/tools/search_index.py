"""A BM25 index of a corpus, built once and kept next to the corpus."""

import hashlib
import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from torl.base.errors import ConfigError, DataError
from torl.base.inputs import open_file, parse_json

if TYPE_CHECKING:
    from bm25s import BM25

_STARTS = "starts.npy"
_K1, _B = 1.5, 0.75  # term frequency saturation and length normalization, as in Lucene and bm25s
Progress = Callable[[str, float], object] | None


class Corpus:
    """The passages of a file, by number. The file is memory-mapped: only passages that are read are in memory.

    A passage is a JSON object with `contents`, whose first line is the title (Search-R1's corpora), or with `title` and
    `text`.
    """

    def __init__(self, path: Path) -> None:
        """Map the file.

        Raises:
            DataError: The file cannot be read, or is empty.
        """
        self.path = path
        try:
            with open_file(path) as file:
                self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: cannot be read as a corpus: {error}") from error

    def close(self) -> None:
        """Unmap the file."""
        self._bytes.close()

    def scan(self) -> Iterator[tuple[int, str]]:
        """Yield the position and the text of each passage. Blank lines are skipped.

        Raises:
            DataError: A line is not a passage.
        """
        start = number = 0
        while start < len(self._bytes):
            stop = self._bytes.find(b"\n", start) + 1 or len(self._bytes)
            number += 1
            if line := self._bytes[start:stop].strip():
                yield start, self._contents(line, f"line {number}")
            start = stop

    def read(self, start: int) -> str:
        """Return the passage that begins at byte `start`."""
        stop = self._bytes.find(b"\n", start)
        return self._contents(self._bytes[start : len(self._bytes) if stop < 0 else stop], f"byte {start}")

    def _contents(self, line: bytes, location: str) -> str:
        try:
            passage = parse_json(line)
        except ValueError as error:
            raise DataError(f"{self.path}: {location}: invalid JSON: {error}") from error
        fields = passage if isinstance(passage, dict) else {}
        if isinstance(contents := fields.get("contents"), str):
            return contents
        if isinstance(text := fields.get("text"), str):
            return f"{fields.get('title') or ''}\n{text}"
        raise DataError(f"{self.path}: {location}: a passage needs the field 'contents', or 'title' and 'text'")


class Bm25Index:
    """BM25 over a corpus, with Lucene's idf (bm25s' "lucene"). Ties go to the earlier passage.

    The words are the tokens of bm25s: runs of at least two letters or digits, in lower case, without English stop
    words.
    """

    def __init__(self, corpus: Corpus, ranking: "BM25", starts: npt.NDArray[np.int64]) -> None:
        """Combine the parts of an index; see `open_index`."""
        self._corpus = corpus
        self._ranking = ranking
        self._starts = starts

    def search(self, query: str, top_k: int) -> list[str]:
        """Return the `top_k` passages with the highest scores, best first. All share a word with the query."""
        import bm25s

        (tokens,) = bm25s.tokenize([query], stopwords="en", return_ids=False, show_progress=False)
        words = [word for word in tokens if word in self._ranking.vocab_dict]
        if not words:
            return []
        scores = self._ranking.get_scores(words)
        min_score = np.partition(scores, -top_k)[-top_k] if top_k < len(scores) else 0.0
        candidates = np.flatnonzero((scores >= min_score) & (scores > 0))
        best = candidates[np.lexsort((candidates, -scores[candidates]))][:top_k]
        return [self._corpus.read(int(start)) for start in self._starts[best]]


def open_index(corpus: Corpus, directory: Path, progress: Progress = None) -> Bm25Index:
    """Open the index of a corpus in `directory`, and build it first if it does not exist.

    The name of the index contains a digest of the corpus, the parameters and the version of the library. The index is
    memory-mapped. During the build, all words of the corpus are in memory.

    Raises:
        ConfigError: bm25s is not installed, or the directory cannot be written.
        DataError: A line of the corpus is not a passage, or the corpus has no words.
    """
    try:
        import bm25s
    except ModuleNotFoundError as error:
        raise ConfigError(f"the tool 'search' needs {error.name}: pip install 'torl[search]'") from error
    with open_file(corpus.path) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    key = hashlib.sha256(f"{bm25s.__version__} {_K1!r} {_B!r} {digest}".encode()).hexdigest()[:16]
    path = directory / f"{corpus.path.name}.bm25-{key}"
    if not path.is_dir():
        _build(corpus, path, progress)
    ranking = bm25s.BM25.load(path, mmap=True, show_progress=False)
    return Bm25Index(corpus, ranking, np.load(path / _STARTS, mmap_mode="r"))


def _build(corpus: Corpus, path: Path, progress: Progress) -> None:
    """Build an index in a temporary directory, and rename it to `path` when it is complete."""
    import bm25s

    starts: list[int] = []

    def texts() -> Iterator[str]:
        size = corpus.path.stat().st_size
        for start, contents in corpus.scan():
            starts.append(start)
            if progress is not None and len(starts) % 10_000 == 0:
                progress("indexing", start / size)
            yield contents

    tokenized = bm25s.tokenize(texts(), stopwords="en", show_progress=False)
    if not tokenized.vocab:
        raise DataError(f"{corpus.path}: the corpus has no words to search for")
    ranking = bm25s.BM25(k1=_K1, b=_B, method="lucene")
    ranking.index(tokenized, show_progress=False)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as directory:
            ranking.save(f"{directory}/index", show_progress=False)
            np.save(f"{directory}/index/{_STARTS}", np.array(starts, np.int64))
            os.rename(f"{directory}/index", path)
    except OSError as error:
        if not path.is_dir():  # unless another process was faster
            raise ConfigError(
                f"{path}: cannot be written: {error}; link the corpus into a directory that can be"
            ) from error
