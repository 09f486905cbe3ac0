"""Problems that are also in an evaluation set, wholly or nearly."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torl.data.shingles import SimilarTexts, ngrams_of, words_of
from torl.types import Problem


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
    same by `SimilarTexts`.
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

    def hit(self, problem: Problem) -> Hit | None:
        """What a problem shares with the sets; None if nothing."""
        words = words_of(problem.question)
        for size in range(self._size, self._shortest - 1, -1):
            for ngram in ngrams_of(words, size):
                found = self._ngrams.get(ngram)
                if found is not None:
                    return Hit(problem.id, *found, "ngram", ngram)
        near = self._similar.nearest(problem.question)
        if near is None:
            return None
        name, share = near
        return Hit(problem.id, *self._names[name], "near_duplicate", f"{share:.2f}")
