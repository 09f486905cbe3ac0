"""Problem files of curation: layouts of foreign files, raw problems of several sources, and encoding."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from torl.apps.curation.similarity import words_of
from torl.apps.curation.verifiability import normalize_answer, rejection_reason
from torl.errors import ConfigError, DataError
from torl.types import Problem

_FIELDS = ("problem", "answer", "id")


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a problem file."""

    columns: dict[str, str]
    """Columns of the fields problem, answer and id, if they have other names."""
    split: str | None
    """Split of a dataset."""


def layouts(columns: Sequence[str], splits: Sequence[str], names: Collection[str]) -> dict[str, Layout]:
    """Parse the layout of each file. Arguments for one file override arguments for all files.

    Args:
        columns: `FIELD=COLUMN` for all files, `NAME:FIELD=COLUMN` for one.
        splits: `SPLIT` for all files, `NAME:SPLIT` for one.
        names: Names of the files.

    Returns:
        Layouts by name.

    Raises:
        ConfigError: An argument is malformed, or its field or file is unknown.
    """
    columns_of, splits_of = _by_file("--column", columns, names), _by_file("--split", splits, names)
    return {
        name: Layout(dict(map(_field_and_column, columns_of[name])), next(reversed(splits_of[name]), None))
        for name in names
    }


def _by_file(option: str, arguments: Sequence[str], names: Collection[str]) -> dict[str, list[str]]:
    """Return the values for each file, after the values for all files."""
    common: list[str] = []
    specific: dict[str, list[str]] = {name: [] for name in names}
    for argument in arguments:
        name, colon, value = argument.rpartition(":")
        if not colon:
            common.append(value)
        elif name in specific:
            specific[name].append(value)
        else:
            raise ConfigError(f"{option} {argument}: unknown file {name!r}; the files are {', '.join(sorted(names))}")
    return {name: common + values for name, values in specific.items()}


def _field_and_column(argument: str) -> tuple[str, str]:
    field, _, column = argument.partition("=")
    if field not in _FIELDS or not column:
        raise ConfigError(f"--column must be FIELD=COLUMN with FIELD one of {', '.join(_FIELDS)}, got {argument!r}")
    return field, column


RawSource: TypeAlias = Callable[[], Iterable[tuple[str, Problem | DataError]]]
"""A source of raw problems: each row's location, and its problem or its error."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A row that is dropped."""

    id: str
    reason: str
    because_of: str = ""
    """Id of the problem, or error, that is the cause."""


@dataclass(frozen=True, slots=True)
class Survey:
    """A first look at raw problems."""

    rows: int
    answers: set[str]
    """Answers of verifiable problems."""
    ambiguous: dict[int, list[str]]
    """Different answers to the same question, by the question's hash."""


class RawProblems:
    """Problems of several sources, read as often as needed. Ids in several sources get the source's name as a prefix.

    Call `survey` first.
    """

    def __init__(self, sources: Mapping[str, RawSource]) -> None:
        self._sources = sources
        self._shared: set[int] = set()  # hashes of the ids that several sources have
        self._repeated: set[int] = set()  # hashes of the ids that one source has several times, with its name
        self.conflicting: Collection[int] = ()
        """Hashes of questions that are rejected because their answers contradict each other."""

    def survey(self) -> Survey:
        """Read all problems.

        Raises:
            DataError: All rows of a source are invalid, or a source cannot be read.
        """
        rows, answers = 0, dict[int, list[str]]()
        known = set[int]()
        for name in self._sources:
            valid, invalid, first_error = 0, 0, None
            for _, source, problem in self._rows(name):
                rows += 1
                if isinstance(problem, DataError):
                    invalid += 1
                    first_error = first_error or problem
                    continue
                valid += 1
                identifier, in_source = hash(problem.id), hash((source, problem.id))
                if in_source in known:
                    self._repeated.add(in_source)
                    continue
                if identifier in known:
                    self._shared.add(identifier)
                known |= {identifier, in_source}
                if rejection_reason(problem) is None:
                    found = answers.setdefault(_hash_of(problem.question), [])
                    answer = normalize_answer(problem.answer)
                    if answer not in found:
                        found.append(answer)
            if first_error is not None and valid == 0:
                raise DataError(f"{first_error} (all {invalid} rows are invalid)")
        every = {answer for found in answers.values() for answer in found}
        return Survey(rows, every, {key: found for key, found in answers.items() if len(found) > 1})

    def checked(self) -> Iterator[Problem | Rejection]:
        """Yield each problem with a normalized answer, or the reason to drop it."""
        for name in self._sources:
            seen = set[int]()
            for location, source, problem in self._rows(name):
                if isinstance(problem, DataError):
                    place = location.rpartition(", ")[2].replace(" ", "-")
                    identifier = place if len(self._sources) == 1 else f"{source}/{place}"
                    yield Rejection(identifier, "invalid_row", str(problem).removeprefix(f"{location}: "))
                    continue
                in_source = hash((source, problem.id))
                if in_source in self._repeated and in_source in seen:
                    yield Rejection(problem.id, "repeated_id")
                    continue
                if in_source in self._repeated:
                    seen.add(in_source)
                yield self._checked(source, problem)

    def _checked(self, source: str, problem: Problem) -> Problem | Rejection:
        if hash(problem.id) in self._shared:
            problem = replace(problem, id=f"{source}/{problem.id}")
        reason = rejection_reason(problem)
        if reason is None and self.conflicting and _hash_of(problem.question) in self.conflicting:
            reason = "conflicting_answers"
        if reason is not None:
            return Rejection(problem.id, reason)
        return replace(problem, answer=normalize_answer(problem.answer))

    def _rows(self, name: str) -> Iterator[tuple[str, str, Problem | DataError]]:
        """Yield the rows of a source: location, name of the problem's source, and problem or error."""
        for location, problem in self._sources[name]():
            if isinstance(problem, DataError):
                yield location, name, problem
            else:
                named = replace(problem, metadata={"source": name, **problem.metadata})
                yield location, str(named.metadata["source"]), named


def _hash_of(question: str) -> int:
    """Return a hash of a question's words."""
    return hash(" ".join(words_of(question)))


class Questions:
    """The questions of verifiable problems, which can be iterated several times."""

    def __init__(self, problems: RawProblems) -> None:
        self._problems = problems

    def __iter__(self) -> Iterator[str]:
        return (problem.question for problem in self._problems.checked() if isinstance(problem, Problem))


def encode_problems(problems: Iterable[Problem]) -> bytes:
    """Encode problems as JSON lines: id, problem, answer and metadata."""
    return encode_rows(
        {"id": problem.id, "problem": problem.question, "answer": problem.answer, **problem.metadata}
        for problem in problems
    )


def encode_rows(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Encode rows as JSON lines."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
