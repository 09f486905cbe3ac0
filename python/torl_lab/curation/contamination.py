"""Problems of evaluation sets among training problems: word n-grams and similar texts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, NamedTuple

import numpy as np

from torl.base.types import Problem
from torl_lab.curation.similarity import Hashes, SimilarTexts, pair_hashes, without_letters, word_hashes, words_of

_MAX_PHRASE_COUNT = 5  # n-grams in more looked-up problems are common phrases
_MIN_OVERLAP_OF_SYMBOLS = 0.9  # of the longer text's words, with one symbol for all letters
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


class _Ngram(NamedTuple):
    """An n-gram, and the offset of its rarest pair."""

    words: tuple[str, ...]
    offset: int


class EvaluationIndex:
    """An index of evaluation problems that finds contaminated training problems.

    A match shares an n-gram of `ngram_size` words with an evaluation problem (all words of a shorter problem) and, in
    the same order, at least 0.6 of the shorter text's words; or it is a near duplicate, or the same but for single
    letters. An n-gram alone may be a phrase
    ("where m and n are relatively prime positive integers"), a formula or the head of a drawing. N-grams that occur in
    many of the looked-up problems never count.
    """

    def __init__(self, sets: Mapping[str, Sequence[Problem]], ngram_size: int, similar: SimilarTexts) -> None:
        """Index the sets.

        Args:
            sets: Evaluation problems by set name.
            ngram_size: Number of words of an n-gram.
            similar: Index whose first texts are the questions of `sets`, in order. They become its members.
        """
        self._similar, self._ngram_size = similar, ngram_size
        self._problems = [(name, problem.id) for name, problems in sets.items() for problem in problems]
        self._words = [words_of(problem.question) for problems in sets.values() for problem in problems]
        self._evaluated: dict[str, list[int]] = {}  # problems by n-gram
        self._found_by: dict[int, list[_Ngram]] = {}  # n-grams by the hash of their rarest pair, or of a single word
        self._phrases = Counter[str]()
        for index, words in enumerate(map(without_letters, self._words)):
            similar.add(index)
            size = max(1, min(ngram_size, len(words)))
            hashes = pair_hashes(words) if size > 1 else word_hashes(words)
            frequency = similar.frequency(hashes)
            for start in range(len(words) - size + 1):
                ngram = tuple(words[start : start + size])
                evaluated = self._evaluated.setdefault(" ".join(ngram), [])
                evaluated.append(index)
                if len(evaluated) == 1:
                    offset = int(np.argmin(frequency[start : start + max(1, size - 1)]))
                    self._found_by.setdefault(int(hashes[start + offset]), []).append(_Ngram(ngram, offset))
        self._keys = np.array(sorted(self._found_by), np.uint32)
        self._finds_words = any(min(ngram_size, len(words)) == 1 for words in self._words)

    def __len__(self) -> int:
        """Return the number of evaluation problems, which are the first texts of the index."""
        return len(self._problems)

    def may_share(self, index: int) -> bool:
        """Whether a text of the index contains the rarest pair of an n-gram, without which it has no n-gram."""
        return self._finds_words or bool(self._are_keys(self._similar.pairs(index)).any())

    def count_phrases(self, words: Sequence[str]) -> None:
        """Count the n-grams of a text that will be looked up."""
        self._phrases.update(set(self._shared(without_letters(words))))

    def drop_phrases(self) -> None:
        """Remove the n-grams that occur in many of the counted texts."""
        for ngram, count in self._phrases.items():
            if count > _MAX_PHRASE_COUNT:
                del self._evaluated[ngram]
        self._phrases.clear()

    def find_ngram(self, problem_id: str, words: Sequence[str]) -> ContaminationMatch | None:
        """Return the first match of a problem by n-grams, or None."""
        compared: set[int] = set()
        for shared in self._shared(without_letters(words)):
            for index in self._evaluated[shared]:
                if index not in compared and self._is_same(words, self._words[index]):
                    return ContaminationMatch(problem_id, *self._problems[index], "ngram", shared)
                compared.add(index)
        return None

    def _is_same(self, words: Sequence[str], evaluated: Sequence[str]) -> bool:
        """Whether a text shares an n-gram and enough words with an evaluation problem, or is it with other letters."""
        longest = max(_blocks(words, evaluated))
        if longest >= min(self._ngram_size, len(evaluated)) and overlap_fraction(words, evaluated) >= _MIN_OVERLAP:
            return True
        symbols = _blocks(without_letters(words), without_letters(evaluated))
        return sum(symbols) >= _MIN_OVERLAP_OF_SYMBOLS * max(len(words), len(evaluated))

    def near_match(self, problem_id: str, neighbors: Sequence[tuple[float, int]]) -> ContaminationMatch | None:
        """Return the match with the most similar evaluation problem among the neighbors of a text, or None."""
        for similarity, index in neighbors:
            if index < len(self):
                return ContaminationMatch(problem_id, *self._problems[index], "near_duplicate", f"{similarity:.2f}")
        return None

    def _shared(self, words: Sequence[str]) -> list[str]:
        """Return the n-grams that a text shares with the sets, the longest first."""
        found: list[tuple[int, int, str]] = []
        for hashes in (pair_hashes(words), word_hashes(words))[: 1 + self._finds_words]:
            for place in self._are_keys(hashes).nonzero()[0].tolist():
                for ngram in self._found_by[int(hashes[place])]:
                    start, size = place - ngram.offset, len(ngram.words)
                    if start >= 0 and tuple(words[start : start + size]) == ngram.words:
                        found.append((-size, start, " ".join(ngram.words)))
        return [text for _, _, text in sorted(found) if text in self._evaluated]

    def _are_keys(self, hashes: Hashes) -> Any:
        if not len(self._keys):
            return np.zeros(len(hashes), bool)
        return self._keys[np.minimum(self._keys.searchsorted(hashes), len(self._keys) - 1)] == hashes


def _blocks(one: Sequence[str], other: Sequence[str]) -> list[int]:
    """Return the sizes of the blocks of words that both texts have in the same order."""
    blocks = SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks()
    return [block.size for block in blocks]


def overlap_fraction(one: Sequence[str], other: Sequence[str]) -> float:
    """Return the fraction of the shorter text's words that both have in the same order."""
    return sum(_blocks(one, other)) / max(1, min(len(one), len(other)))
