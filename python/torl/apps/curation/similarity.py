"""Near-duplicate problems and contamination: word n-grams, and exact search for similar texts."""

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import chain, pairwise
from math import ceil
from typing import Final, TypeAlias

import numpy as np

from torl.types import Problem

Shingles: TypeAlias = frozenset[int]
"""Hashes of word pairs, which take a tenth of the memory of text. Python's hashes differ between processes."""

_WORD = re.compile(r"[a-z]+|\d+|[^\sa-z\d]")
_IGNORED = frozenset("$.,;:!?~\"'`()[]{}&")
_COUNTERS: Final = 2**21  # shingles that share a counter only seem more frequent


def words_of(text: str) -> list[str]:
    """Return the lower-case words, numbers and signs of a text, without layout and punctuation."""
    plain = text.lower().replace("\\left", "").replace("\\right", "").replace("\\dfrac", "\\frac")
    return [word for word in _WORD.findall(plain) if word not in _IGNORED and word != "\\"]


def shingles_of(text: str) -> Shingles:
    """Return the pairs of adjacent words, or the word of a text with a single word."""
    words = words_of(text)
    return frozenset(hash(" ".join(pair)) for pair in pairwise(words)) or frozenset(map(hash, words))


def ngrams_of(words: Sequence[str], size: int) -> Iterator[str]:
    """Yield all n-grams of `size` words, or all words of a shorter text."""
    for start in range(max(1, len(words) - size + 1)):
        yield " ".join(words[start : start + size])


def similarity(one: Shingles, other: Shingles) -> float:
    """Return the Jaccard similarity; 1 for two empty sets."""
    union = len(one | other)
    return len(one & other) / union if union else 1.0


class SimilarTexts:
    """An exact index of texts by similarity. It stores shingles of eight bytes instead of the texts.

    Two sets with a Jaccard similarity of at least t share a member among the rarest |x| - ceil(t |x|) + 1 of each, so
    only these are indexed and looked up (prefix filter: Chaudhuri et al. 2006; Bayardo et al. 2007).
    """

    def __init__(self, threshold: float, texts: Iterable[str]) -> None:
        """Count the shingles of `texts`.

        Args:
            threshold: Minimum similarity, above 0 and at most 1.
            texts: All texts that will be added or looked up. They determine which shingles are rare.

        Raises:
            ValueError: `threshold` is out of range.
        """
        if not 0 < threshold <= 1:
            raise ValueError(f"the similarity threshold must be above 0 and at most 1, got {threshold}")
        self._threshold = threshold
        self._frequency = np.zeros(_COUNTERS, np.uint32).data  # untouched pages take no memory
        for text in texts:
            for shingle in shingles_of(text):
                self._frequency[shingle % _COUNTERS] += 1
        self._texts: list[tuple[str, array[int]]] = []  # names and shingles
        self._index: dict[int, list[int]] = {}

    def add(self, name: str, text: str) -> None:
        """Add a text with a name."""
        shingles = shingles_of(text)
        for shingle in self._rarest(shingles):
            self._index.setdefault(shingle, []).append(len(self._texts))
        self._texts.append((name, array("q", shingles)))

    def nearest(self, text: str) -> tuple[str, float] | None:
        """Return the name and the similarity of the most similar text, or None if all are below the threshold."""
        shingles = shingles_of(text)
        candidates = {index for shingle in self._rarest(shingles) for index in self._index.get(shingle, ())}
        found = [(similarity(shingles, frozenset(self._texts[index][1])), -index) for index in candidates]
        highest, negative_index = max(found, default=(0.0, 0))
        return (self._texts[-negative_index][0], highest) if highest >= self._threshold else None

    def _rarest(self, shingles: Shingles) -> list[int]:
        ordered = sorted(shingles, key=lambda shingle: (self._frequency[shingle % _COUNTERS], shingle))
        return ordered[: len(shingles) - ceil(self._threshold * len(shingles) - 1e-9) + 1]


_MAX_PHRASE_COUNT = 5  # n-grams in more looked-up problems are common phrases
_MIN_OVERLAP = 0.6  # of the shorter text's words, as Qwen2.5-Math's report requires of a match of 13 words


@dataclass(frozen=True, slots=True)
class ContaminationMatch:
    """A match of a problem with a problem of an evaluation set."""

    problem: str
    """Id of the problem."""
    set_name: str
    evaluation_problem: str
    """Id of the problem in the evaluation set."""
    reason: str
    """Kind of the match, "ngram" or "near_duplicate"."""
    shared: str
    """Shared words, or the similarity."""


class EvaluationSets:
    """An index of evaluation problems that finds contaminated training problems.

    A match shares an n-gram of `ngram_size` words with an evaluation problem (all words of a shorter problem) and, in
    the same order, at least 0.6 of the shorter text's words; or it is a near duplicate by `SimilarTexts`. An n-gram
    alone may be a phrase ("where m and n are relatively prime positive integers"), a formula or the head of a drawing.
    N-grams that occur in many of the looked-up problems never count.
    """

    def __init__(
        self, sets: Mapping[str, Sequence[Problem]], ngram_size: int, threshold: float, texts: Iterable[str]
    ) -> None:
        """Index the sets.

        Args:
            sets: Evaluation problems by set name.
            ngram_size: Number of words of an n-gram.
            threshold: Minimum similarity of near duplicates.
            texts: All texts that will be looked up. They are iterated twice.
        """
        self._size = ngram_size
        self._ngrams: dict[str, list[str]] = {}
        self._words: dict[str, list[str]] = {}
        self._shortest = ngram_size
        questions = [problem.question for problems in sets.values() for problem in problems]
        self._similar = SimilarTexts(threshold, chain(questions, texts))
        self._names: dict[str, tuple[str, str]] = {}
        for set_name, problems in sets.items():
            for problem in problems:
                name = f"{set_name}\0{problem.id}"
                self._names[name] = (set_name, problem.id)
                self._similar.add(name, problem.question)
                words = self._words[name] = words_of(problem.question)
                self._shortest = min(self._shortest, max(1, len(words)))
                for ngram in ngrams_of(words, ngram_size):
                    self._ngrams.setdefault(ngram, []).append(name)
        counts = Counter(ngram for text in texts for ngram in set(self._shared(words_of(text))))
        for ngram, count in counts.items():
            if count > _MAX_PHRASE_COUNT:
                del self._ngrams[ngram]

    def find_match(self, problem: Problem) -> ContaminationMatch | None:
        """Return the first match of a problem, or None."""
        words = words_of(problem.question)
        compared: set[str] = set()
        for shared in self._shared(words):
            for name in self._ngrams[shared]:
                if name not in compared and overlap_fraction(words, self._words[name]) >= _MIN_OVERLAP:
                    return ContaminationMatch(problem.id, *self._names[name], "ngram", shared)
                compared.add(name)
        near = self._similar.nearest(problem.question)
        if near is None:
            return None
        name, score = near
        return ContaminationMatch(problem.id, *self._names[name], "near_duplicate", f"{score:.2f}")

    def _shared(self, words: Sequence[str]) -> Iterator[str]:
        """Yield the n-grams that a text shares with the sets, the longest first."""
        for size in range(self._size, self._shortest - 1, -1):
            for ngram in ngrams_of(words, size):
                if ngram in self._ngrams:
                    yield ngram


def overlap_fraction(one: Sequence[str], other: Sequence[str]) -> float:
    """Return the fraction of the shorter text's words that both have in the same order."""
    blocks = SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks()
    return sum(block.size for block in blocks) / max(1, min(len(one), len(other)))
