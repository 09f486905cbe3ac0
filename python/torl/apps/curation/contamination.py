"""Problems of evaluation sets among training problems: word n-grams and similar texts."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

import numpy as np

from torl.apps.curation.similarity import SimilarTexts, pair_hashes, words_of
from torl.types import Problem

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
    the same order, at least 0.6 of the shorter text's words; or it is a near duplicate. An n-gram alone may be a phrase
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
        self._similar = similar
        self._ngrams: dict[str, list[int]] = {}
        self._phrases = Counter[str]()
        self._problems = [(name, problem.id) for name, problems in sets.items() for problem in problems]
        self._words = [words_of(problem.question) for problems in sets.values() for problem in problems]
        self._sizes = sorted({max(1, min(ngram_size, len(words))) for words in self._words}, reverse=True)
        rare = set[int]()
        self._has_words = False
        for index, words in enumerate(self._words):
            similar.add(index)
            size = max(1, min(ngram_size, len(words)))
            pairs = pair_hashes(words)
            frequency = similar.frequency(pairs)
            for start, ngram in enumerate(_ngrams(words, size)):
                self._ngrams.setdefault(ngram, []).append(index)
                window = slice(start, start + size - 1)
                if size > 1:
                    rare.add(int(pairs[window][np.argmin(frequency[window])]))
                else:
                    self._has_words = True
        self._rare = np.array(sorted(rare), np.uint32)

    def __len__(self) -> int:
        """Return the number of evaluation problems, which are the first texts of the index."""
        return len(self._problems)

    def may_share(self, index: int) -> bool:
        """Whether a text of the index contains the rarest pair of an n-gram, without which it has no n-gram."""
        if self._has_words or not len(self._rare):
            return self._has_words
        pairs = self._similar.pairs(index)
        places = np.minimum(self._rare.searchsorted(pairs), len(self._rare) - 1)
        return bool((self._rare[places] == pairs).any())

    def count_phrases(self, words: Sequence[str]) -> None:
        """Count the n-grams of a text that will be looked up."""
        self._phrases.update(set(self._shared(words)))

    def drop_phrases(self) -> None:
        """Remove the n-grams that occur in many of the counted texts."""
        for ngram, count in self._phrases.items():
            if count > _MAX_PHRASE_COUNT:
                del self._ngrams[ngram]
        self._phrases.clear()

    def find_ngram(self, problem_id: str, words: Sequence[str]) -> ContaminationMatch | None:
        """Return the first match of a problem by n-grams, or None."""
        compared: set[int] = set()
        for shared in self._shared(words):
            for index in self._ngrams[shared]:
                if index not in compared and overlap_fraction(words, self._words[index]) >= _MIN_OVERLAP:
                    return ContaminationMatch(problem_id, *self._problems[index], "ngram", shared)
                compared.add(index)
        return None

    def near_match(self, problem_id: str, neighbors: Sequence[tuple[float, int]]) -> ContaminationMatch | None:
        """Return the match with the most similar evaluation problem among the neighbors of a text, or None."""
        for similarity, index in neighbors:
            if index < len(self):
                return ContaminationMatch(problem_id, *self._problems[index], "near_duplicate", f"{similarity:.2f}")
        return None

    def _shared(self, words: Sequence[str]) -> Iterator[str]:
        """Yield the n-grams that a text shares with the sets, the longest first."""
        for size in self._sizes:
            for ngram in _ngrams(words, size):
                if ngram in self._ngrams:
                    yield ngram


def _ngrams(words: Sequence[str], size: int) -> Iterator[str]:
    """Yield all n-grams of `size` words, or all words of a shorter text."""
    for start in range(max(1, len(words) - size + 1)):
        yield " ".join(words[start : start + size])


def overlap_fraction(one: Sequence[str], other: Sequence[str]) -> float:
    """Return the fraction of the shorter text's words that both have in the same order."""
    blocks = SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks()
    return sum(block.size for block in blocks) / max(1, min(len(one), len(other)))
