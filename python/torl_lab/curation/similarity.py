"""Exact search for similar texts by word pairs, in arrays of a few hundred bytes for each text."""

import re
from array import array
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np

Hashes: TypeAlias = Any
"""An array of 32-bit hashes of word pairs. They are the same within a process only, as Python's hashes of text are."""

_WORD = re.compile(r"[a-z]+|\d+|[^\sa-z\d]")
_IGNORED = frozenset("$.,;:!?~\"'`()[]{}&\\")
_COUNTERS: Final = 2**24  # pairs that share a counter only seem more frequent
_SHARED: Final = 3  # pairs that similar texts share in their prefixes; more are slower to look up, fewer to compare
_CHUNK: Final = 8192  # texts whose prefixes are found at once
_FACTORS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9))


def words_of(text: str) -> list[str]:
    """Return the lower-case words, numbers and signs of a text, without layout and punctuation."""
    plain = text.lower().replace("\\left", "").replace("\\right", "").replace("\\dfrac", "\\frac")
    return [word for word in _WORD.findall(plain) if word not in _IGNORED]


def without_letters(words: Sequence[str]) -> list[str]:
    """Return words with one symbol for every single letter: a problem is the same with other letters as variables."""
    return ["x" if len(word) == 1 and word.isalpha() else word for word in words]


def pair_hashes(words: Sequence[str]) -> Hashes:
    """Return the hashes of the pairs of adjacent words in their order, or of the word of a text with a single word."""
    if len(words) < 2:
        return word_hashes(words)
    hashes = _hashes(words)
    return _mixed(hashes[:-1] * _FACTORS[0] + hashes[1:])


def word_hashes(words: Sequence[str]) -> Hashes:
    """Return the hashes of words."""
    return _mixed(_hashes(words))


def _hashes(words: Sequence[str]) -> Any:
    return np.fromiter(map(hash, words), np.int64, len(words)).view(np.uint64)


def _mixed(hashes: Any) -> Hashes:
    return (((hashes ^ (hashes >> np.uint64(31))) * _FACTORS[1]) >> np.uint64(32)).astype(np.uint32)


class Shingles:
    """The sets of word pairs of texts."""

    def __init__(self) -> None:
        self._hashes, self._ends, self._digests = array("I"), array("Q", [0]), array("q")

    def __len__(self) -> int:
        return len(self._digests)

    def add(self, words: Sequence[str]) -> None:
        """Add the text with these words. Its index is the number of texts before it."""
        hashes = pair_hashes(words)
        hashes.sort()
        encoded = hashes[np.append(True, hashes[1:] != hashes[:-1])[: len(hashes)]].tobytes()
        self._hashes.frombytes(encoded)
        self._ends.append(len(self._hashes))
        self._digests.append(hash(encoded))

    def arrays(self) -> tuple[Hashes, Any, Any]:
        """Return views of all hashes, the ends of the texts in them, and a digest of each text.

        No text can be added while a view exists.
        """
        return (
            np.frombuffer(self._hashes, np.uint32),
            np.frombuffer(self._ends, np.uint64).view(np.int64),
            np.frombuffer(self._digests, np.int64),
        )


class SimilarTexts:
    """An exact index of texts by the Jaccard similarity of their word pairs.

    Two sets with a Jaccard similarity of at least t share l members among the rarest |x| - ceil(t |x|) + l of each, for
    any l up to ceil(t |x|), so only these are indexed and looked up (prefix filter: Chaudhuri et al. 2006, Bayardo et
    al. 2007; with l > 1: Wang et al. 2012). Of texts with the same pairs, the first is indexed for all.
    """

    def __init__(self, threshold: float, shingles: Shingles) -> None:
        """Index the texts; `add` makes them members, which `neighbors` finds.

        Args:
            threshold: Minimum similarity, above 0 and at most 1.
            shingles: Texts that will be added or looked up.

        Raises:
            ValueError: `threshold` is out of range.
        """
        if not 0 < threshold <= 1:
            raise ValueError(f"the similarity threshold must be above 0 and at most 1, got {threshold}")
        self._threshold = threshold
        self._hashes, self._ends, digests = shingles.arrays()
        self._frequency = np.zeros(_COUNTERS, np.uint32)
        for start in range(0, len(self._hashes), 2**20):
            np.add.at(self._frequency, self._hashes[start : start + 2**20] % _COUNTERS, 1)
        _, first, inverse = np.unique(digests, return_index=True, return_inverse=True)
        self._first = first[inverse].astype(np.uint32)  # the first text with the same pairs
        self._member = np.full(len(shingles), -1, np.int64)  # the member with the pairs of each first text, or -1
        chunks = [self._entries_of(start) for start in range(0, len(shingles), _CHUNK)]
        self._entries = np.concatenate([np.zeros(0, np.uint64), *chunks])
        self._entries.sort()
        self._texts = self._entries.astype(np.uint32)  # the lower halves

    def add(self, index: int) -> None:
        """Make a text a member."""
        self._member[self._first[index]] = index

    def pairs(self, index: int) -> Hashes:
        """Return the sorted hashes of a text."""
        return self._hashes[self._ends[index] : self._ends[index + 1]]

    def frequency(self, hashes: Hashes) -> Any:
        """Return the number of texts that contain each pair, or a larger number."""
        return self._frequency[hashes % _COUNTERS]

    def neighbors(self, index: int) -> list[tuple[float, int]]:
        """Return the similar members before a text with their similarities, the most similar first."""
        own = self.pairs(index)
        keys = self._prefix(own).astype(np.uint64) << np.uint64(32)
        starts = self._entries.searchsorted(keys)
        stops = self._entries.searchsorted(keys | np.uint64(index), side="right")
        matching = [self._texts[start:stop] for start, stop in zip(starts, stops, strict=True) if stop > start]
        if not matching:
            return []
        texts, sizes = self._candidates(np.concatenate(matching), len(own))
        if not len(texts):
            return []
        joined = np.concatenate([self.pairs(text) for text in texts])
        places = np.minimum(own.searchsorted(joined), len(own) - 1)
        starts_of = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        shared = np.add.reduceat((own[places] == joined).astype(np.int64), starts_of)
        similarities = shared / (sizes + len(own) - shared)
        found = [
            (float(similarity), int(self._member[text]))
            for similarity, text in zip(similarities, texts, strict=True)
            if similarity >= self._threshold
        ]
        return sorted(found, key=lambda each: (-each[0], each[1]))

    def _candidates(self, texts: Any, size: int) -> tuple[Any, Any]:
        """Return the members that share enough of the prefix and may be large enough, and their sizes.

        Args:
            texts: Texts of the index entries that match a text, with repetitions.
            size: Size of that text.
        """
        texts.sort()
        repeats = int(self._shared_sizes(self._threshold * size)) - 1  # at least, also of the smallest similar text
        last = texts[repeats:][texts[repeats:] == texts[: len(texts) - repeats]]  # few of thousands are left
        last = last[np.append(True, last[1:] != last[:-1])[: len(last)]]
        shared = texts.searchsorted(last, side="right") - texts.searchsorted(last)
        texts = last.astype(np.int64)
        sizes = self._ends[texts + 1] - self._ends[texts]
        keep = (self._member[texts] >= 0) & (shared >= np.minimum(self._shared_sizes(sizes), self._shared_sizes(size)))
        keep &= (sizes >= self._threshold * size - 1e-9) & (size >= self._threshold * sizes - 1e-9)
        return texts[keep], sizes[keep]

    def _prefix(self, hashes: Hashes) -> Hashes:
        """Return the rarest pairs of a text, except pairs that no other text has."""
        frequency = self.frequency(hashes)
        rarest = np.lexsort((hashes, frequency))[: self._prefix_sizes(len(hashes))]
        return hashes[rarest[frequency[rarest] > 1]]

    def _shared_sizes(self, sizes: Any) -> Any:
        """Return the numbers of pairs that similar texts share in their prefixes."""
        return np.minimum(_SHARED, np.ceil(self._threshold * sizes - 1e-9).astype(int))

    def _prefix_sizes(self, sizes: Any) -> Any:
        return sizes - np.ceil(self._threshold * sizes - 1e-9).astype(int) + self._shared_sizes(sizes)

    def _entries_of(self, start: int) -> Any:
        """Return the index entries of a chunk of texts: a rare pair in the upper half, its text in the lower."""
        texts = np.arange(start, min(start + _CHUNK, len(self._first)))
        texts = texts[self._first[texts] == texts]
        sizes = self._ends[texts + 1] - self._ends[texts]
        hashes = np.concatenate([np.zeros(0, np.uint32), *(self.pairs(text) for text in texts)])
        owners, frequency = np.repeat(texts, sizes), self.frequency(hashes)
        order = np.lexsort((hashes, frequency, owners))
        rank = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        chosen = order[(rank < np.repeat(self._prefix_sizes(sizes), sizes)) & (frequency[order] > 1)]
        return (hashes[chosen].astype(np.uint64) << np.uint64(32)) | owners[chosen].astype(np.uint64)
