"""Problems that are also in an evaluation set, wholly or nearly."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torl.data.shingles import SimilarTexts, ngrams_of, words_of
from torl.types import Problem

_PHRASE = 5  # looked up problems that may have the same words in a row


@dataclass(frozen=True, slots=True)
class Hit:
    """A problem, and the problem of an evaluation set that it shares something with."""

    problem: str
    set_name: str
    evaluated: str  # the id there
    reason: str  # "ngram" or "near_duplicate"
    shared: str  # the words, or how similar the two are


class EvaluationSets:
    """The problems of evaluation sets, looked up by what they share with others.

    A hit shares `ngram_words` words in a row with one of them (all of its words, if it has fewer), or is nearly the
    same by `SimilarTexts`. Words in a row that many of the looked up problems have are a phrase ("where m and n are
    relatively prime positive integers"), and no hit.
    """

    def __init__(
        self, sets: Mapping[str, Sequence[Problem]], ngram_words: int, threshold: float, texts: Sequence[str]
    ) -> None:
        """Read the sets; `texts` are those that will be looked up."""
        self._size = ngram_words
        self._ngrams: dict[str, tuple[str, str]] = {}
        self._shortest = ngram_words
        questions = [problem.question for problems in sets.values() for problem in problems]
        self._similar = SimilarTexts(threshold, [*questions, *texts])
        self._names: dict[str, tuple[str, str]] = {}
        for set_name, problems in sets.items():
            for problem in problems:
                name = f"{set_name}\0{problem.id}"
                self._names[name] = (set_name, problem.id)
                self._similar.add(name, problem.question)
                words = words_of(problem.question)
                self._shortest = min(self._shortest, max(1, len(words)))
                for ngram in ngrams_of(words, ngram_words):
                    self._ngrams.setdefault(ngram, (set_name, problem.id))
        counts = Counter(ngram for text in texts for ngram in set(self._shared(words_of(text))))
        for ngram, count in counts.items():
            if count > _PHRASE:
                del self._ngrams[ngram]

    def hit(self, problem: Problem) -> Hit | None:
        """What a problem shares with the sets; None if nothing."""
        shared = next(self._shared(words_of(problem.question)), None)
        if shared is not None:
            return Hit(problem.id, *self._ngrams[shared], "ngram", shared)
        near = self._similar.nearest(problem.question)
        if near is None:
            return None
        name, share = near
        return Hit(problem.id, *self._names[name], "near_duplicate", f"{share:.2f}")

    def _shared(self, words: Sequence[str]) -> Iterator[str]:
        """The words in a row that a text has in common with the sets, the longest first."""
        for size in range(self._size, self._shortest - 1, -1):
            for ngram in ngrams_of(words, size):
                if ngram in self._ngrams:
                    yield ngram
