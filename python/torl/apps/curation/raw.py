"""Raw problems of several sources, read one after the other as often as they are needed."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from torl.data import ProblemSource
from torl.data.verifiability import normalize_answer, rejection_reason
from torl.errors import DataError
from torl.types import Problem


class RawProblems:
    """Each with its source; an id that several sources have gets the source's name in front."""

    def __init__(self, sources: Mapping[str, ProblemSource]) -> None:
        """Read nothing yet; `survey` comes first."""
        self._sources = sources
        self._shared: set[int] = set()  # the hashes of the ids that several have

    def survey(self) -> tuple[int, set[str]]:
        """Read all of them once: how many there are, and the answers of those that may be verified.

        Raises:
            DataError: an id is used twice in one source; whatever reading raises.
        """
        answers: set[str] = set()
        count, known = 0, set[int]()
        for name, problem in self._with_sources():
            count += 1
            identifier, in_source = hash(problem.id), hash((name, problem.id))
            if in_source in known:
                raise DataError(f"the id {problem.id!r} is used twice in one source, {name}")
            if identifier in known:
                self._shared.add(identifier)
            known |= {identifier, in_source}
            if rejection_reason(problem) is None:
                answers.add(normalize_answer(problem.answer))
        return count, answers

    def with_rejection_reasons(self) -> Iterator[tuple[Problem, str | None]]:
        """Each with the reason why it cannot be verified; those that can (None) have normalized answers."""
        for name, problem in self._with_sources():
            if hash(problem.id) in self._shared:
                problem = replace(problem, id=f"{name}/{problem.id}")
            reason = rejection_reason(problem)
            if reason is None:
                problem = replace(problem, answer=normalize_answer(problem.answer))
            yield problem, reason

    def _with_sources(self) -> Iterator[tuple[str, Problem]]:
        for name, source in self._sources.items():
            for problem in source():
                named = replace(problem, metadata={"source": name, **problem.metadata})
                yield str(named.metadata["source"]), named


class Questions:
    """The questions of the problems that may be verified; they may be read several times."""

    def __init__(self, problems: RawProblems) -> None:
        """Of problems that were surveyed."""
        self._problems = problems

    def __iter__(self) -> Iterator[str]:
        return (problem.question for problem, reason in self._problems.with_rejection_reasons() if reason is None)
