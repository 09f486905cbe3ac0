"""Problems that are also in an evaluation set, wholly or nearly."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import chain

from torl.data.shingles import SimilarTexts, ngrams_of, words_of
from torl.types import Problem

_PHRASE = 5  # looked up problems that may have the same words in a row
_MIN_SHARED = 0.6  # of the shorter one's words, as Qwen2.5-Math's report asks of a match of 13 words


@dataclass(frozen=True, slots=True)
class ContaminationMatch:
    """A problem, and the problem of an evaluation set that it shares something with."""

    problem: str
    set_name: str
    evaluation_problem: str  # the id there
    reason: str  # "ngram" or "near_duplicate"
    shared: str  # the words, or how similar the two are


class EvaluationSets:
    """The problems of evaluation sets, looked up by what they share with others.

    A hit shares `ngram_words` words in a row with one of them (all of its words, if it has fewer), and with these at
    least 0.6 of the shorter one's words in the same order; or it is nearly the same by `SimilarTexts`. Words in a row
    alone may be a phrase ("where m and n are relatively prime positive integers"), a formula or the head of a drawing;
    those that many of the looked up problems have are never a hit.
    """

    def __init__(
        self, sets: Mapping[str, Sequence[Problem]], ngram_words: int, threshold: float, texts: Iterable[str]
    ) -> None:
        """Read the sets; `texts` are those that will be looked up, and are read twice."""
        self._size = ngram_words
        self._ngrams: dict[str, list[str]] = {}
        self._words: dict[str, list[str]] = {}
        self._shortest = ngram_words
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
                for ngram in ngrams_of(words, ngram_words):
                    self._ngrams.setdefault(ngram, []).append(name)
        counts = Counter(ngram for text in texts for ngram in set(self._shared(words_of(text))))
        for ngram, count in counts.items():
            if count > _PHRASE:
                del self._ngrams[ngram]

    def find_match(self, problem: Problem) -> ContaminationMatch | None:
        """What a problem shares with the sets; None if nothing."""
        words = words_of(problem.question)
        looked_at: set[str] = set()
        for shared in self._shared(words):
            for name in self._ngrams[shared]:
                if name not in looked_at and overlap_fraction(words, self._words[name]) >= _MIN_SHARED:
                    return ContaminationMatch(problem.id, *self._names[name], "ngram", shared)
                looked_at.add(name)
        near = self._similar.nearest(problem.question)
        if near is None:
            return None
        name, share = near
        return ContaminationMatch(problem.id, *self._names[name], "near_duplicate", f"{share:.2f}")

    def _shared(self, words: Sequence[str]) -> Iterator[str]:
        """The words in a row that a text has in common with the sets, the longest first."""
        for size in range(self._size, self._shortest - 1, -1):
            for ngram in ngrams_of(words, size):
                if ngram in self._ngrams:
                    yield ngram


def overlap_fraction(one: Sequence[str], other: Sequence[str]) -> float:
    """How much of the shorter text's words the other has too, in the same order: 0 to 1."""
    blocks = SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks()
    return sum(block.size for block in blocks) / max(1, min(len(one), len(other)))
