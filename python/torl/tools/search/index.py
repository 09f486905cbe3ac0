"""An index of the words of a corpus (BM25), made once and kept beside it."""

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from torl.errors import ConfigError, DataError
from torl.tools.search.corpus import Corpus

if TYPE_CHECKING:
    from bm25s import BM25

_STARTS = "starts.npy"
_CHUNK = 1 << 24  # bytes
Progress = Callable[[str, float], object] | None


class Bm25Index:
    """BM25 over a corpus, with Lucene's idf (bm25s' "lucene"); ties go to the passage that stands first.

    The words are what bm25s' tokenizer finds: runs of at least two letters or digits, in lower case, without English
    stop words.
    """

    def __init__(self, corpus: Corpus, ranking: "BM25", starts: npt.NDArray[np.int64]) -> None:
        """Of parts that belong together; see `open_index`."""
        self._corpus = corpus
        self._ranking = ranking
        self._starts = starts

    def search(self, query: str, results: int) -> list[str]:
        """The passages with the highest scores, best first; those that share no word with the query are not found."""
        words = [word for word in _words([query])[0] if word in self._ranking.vocab_dict]
        if not words:
            return []
        scores = self._ranking.get_scores(words)
        least = np.partition(scores, -results)[-results] if results < len(scores) else 0.0
        candidates = np.flatnonzero((scores >= least) & (scores > 0))
        best = candidates[np.lexsort((candidates, -scores[candidates]))][:results]
        return [self._corpus.read(int(start)) for start in self._starts[best]]


def open_index(corpus: Corpus, directory: Path, k1: float, b: float, progress: Progress = None) -> Bm25Index:
    """The index of a corpus and these parameters, from `directory`; it is made and put there if it is not there yet.

    Whose index it is stands in its name: a digest of the corpus' bytes, the parameters and the library. What was made
    is memory-mapped. While it is made, all words of the corpus are in memory.

    Raises:
        ConfigError: bm25s is not installed, or the directory cannot be written.
        DataError: a line of the corpus is no passage, or it has no words.
    """
    try:
        import bm25s
    except ModuleNotFoundError as error:
        raise ConfigError(f"the tool 'search' needs {error.name}: pip install 'torl[search]'") from error
    key = hashlib.sha256(f"{bm25s.__version__} {k1!r} {b!r} {_digest(corpus.path)}".encode()).hexdigest()[:16]
    place = directory / f"{corpus.path.name}.bm25-{key}"
    if not place.is_dir():
        _make(corpus, place, k1, b, progress)
    ranking = bm25s.BM25.load(place, mmap=True, show_progress=False)
    return Bm25Index(corpus, ranking, np.load(place / _STARTS, mmap_mode="r"))


def _make(corpus: Corpus, place: Path, k1: float, b: float, progress: Progress) -> None:
    """Make an index in a directory of its own, which becomes `place` when it is whole."""
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
        raise DataError(f"{corpus.path}: there is no word to search for in it")
    ranking = bm25s.BM25(k1=k1, b=b, method="lucene")
    ranking.index(tokenized, show_progress=False)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{place.name}-", dir=place.parent) as made:
            ranking.save(f"{made}/index", show_progress=False)
            np.save(f"{made}/index/{_STARTS}", np.array(starts, np.int64))
            os.rename(f"{made}/index", place)
    except OSError as error:
        if not place.is_dir():  # another process was faster
            raise ConfigError(f"{place}: cannot be written: {error}; name another directory in 'index'") from error


def _words(texts: list[str]) -> list[list[str]]:
    import bm25s

    words: list[list[str]] = bm25s.tokenize(texts, stopwords="en", return_ids=False, show_progress=False)
    return words


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
