"""Problem files of curation: layouts of foreign files, raw problems of several sources, and encoding."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torl.apps.curation.verifiability import normalize_answer, rejection_reason
from torl.data import ProblemSource
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


class RawProblems:
    """Problems of several sources, read as often as needed. Ids in several sources get the source's name as a prefix.

    Call `survey` first.
    """

    def __init__(self, sources: Mapping[str, ProblemSource]) -> None:
        self._sources = sources
        self._shared: set[int] = set()  # hashes of the ids that several sources have

    def survey(self) -> tuple[int, set[str]]:
        """Read all problems and return their number and the answers of verifiable ones.

        Raises:
            DataError: An id is used twice in one source, or a source cannot be read.
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
        """Yield each problem with its rejection reason, or with a normalized answer and None."""
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
    """The questions of verifiable problems, which can be iterated several times."""

    def __init__(self, problems: RawProblems) -> None:
        self._problems = problems

    def __iter__(self) -> Iterator[str]:
        return (problem.question for problem, reason in self._problems.with_rejection_reasons() if reason is None)


def encode_problems(problems: Iterable[Problem]) -> bytes:
    """Encode problems as JSON lines: id, problem, answer and metadata."""
    return encode_rows(
        {"id": problem.id, "problem": problem.question, "answer": problem.answer, **problem.metadata}
        for problem in problems
    )


def encode_rows(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Encode rows as JSON lines."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
