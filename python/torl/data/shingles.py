"""Which texts say nearly the same, exactly: word n-grams, and all pairs above a Jaccard similarity."""

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from math import ceil
from typing import Final, TypeAlias

import numpy as np

Shingles: TypeAlias = frozenset[int]
"""Pairs of words by Python's hash of 64 bits, which is another in each process: a text takes a tenth of the memory."""

_WORD = re.compile(r"[a-z]+|\d+|[^\sa-z\d]")
_IGNORED = frozenset("$.,;:!?~\"'`()[]{}&")
SHINGLE_WORDS = 2
_COUNTED: Final = 2**21  # places for counts of shingles; what shares a place is taken for less rare than it is


def words_of(text: str) -> list[str]:
    """The words, numbers and signs of a text without case, layout and punctuation."""
    plain = text.lower().replace("\\left", "").replace("\\right", "").replace("\\dfrac", "\\frac")
    return [word for word in _WORD.findall(plain) if word not in _IGNORED and word != "\\"]


def shingles_of(text: str) -> Shingles:
    """The pairs of words that follow each other; the words themselves where there is one."""
    words = words_of(text)
    return frozenset(hash(" ".join(pair)) for pair in pairwise(words)) or frozenset(map(hash, words))


def ngrams_of(words: Sequence[str], size: int) -> Iterator[str]:
    """Every run of `size` words; all words where there are fewer."""
    for start in range(max(1, len(words) - size + 1)):
        yield " ".join(words[start : start + size])


def similarity(one: Shingles, other: Shingles) -> float:
    """Jaccard: what both have of what either has; 1 for two empty ones."""
    either = len(one | other)
    return len(one & other) / either if either else 1.0


class SimilarTexts:
    """Texts that are looked up by similarity, one after the other; no pair at the threshold or above is missed.

    Held are the shingles of each, eight bytes for one, and an index of the rarest, not the texts.

    Two sets with a Jaccard similarity of t or more share a member among the rarest |x| - ceil(t |x|) + 1 of each, so
    only these are indexed and looked up (prefix filter: Chaudhuri et al. 2006; Bayardo et al. 2007).
    """

    def __init__(self, threshold: float, texts: Iterable[str]) -> None:
        """Hold none yet.

        Args:
            threshold: least similarity, above 0 and at most 1.
            texts: all that will be added or looked up: they say which shingles are rare.
        """
        if not 0 < threshold <= 1:
            raise ValueError("the similarity must be above 0 and at most 1")
        self._threshold = threshold
        self._frequency = np.zeros(_COUNTED, np.uint32).data  # of which only what is counted takes memory
        for text in texts:
            for shingle in shingles_of(text):
                self._frequency[shingle % _COUNTED] += 1
        self._held: list[tuple[str, array[int]]] = []
        self._index: dict[int, list[int]] = {}

    def add(self, name: str, text: str) -> None:
        """Hold a text under a name."""
        shingles = shingles_of(text)
        for shingle in self._rarest(shingles):
            self._index.setdefault(shingle, []).append(len(self._held))
        self._held.append((name, array("q", shingles)))

    def nearest(self, text: str) -> tuple[str, float] | None:
        """The name of the most similar text that is held, and the similarity; None if all are below the threshold."""
        shingles = shingles_of(text)
        places = {place for shingle in self._rarest(shingles) for place in self._index.get(shingle, ())}
        found = [(similarity(shingles, frozenset(self._held[place][1])), -place) for place in places]
        most, place = max(found, default=(0.0, 0))
        return (self._held[-place][0], most) if most >= self._threshold else None

    def _rarest(self, shingles: Shingles) -> list[int]:
        ordered = sorted(shingles, key=lambda shingle: (self._frequency[shingle % _COUNTED], shingle))
        return ordered[: len(shingles) - ceil(self._threshold * len(shingles) - 1e-9) + 1]
