"""The rows that a run has read of a source: their hash, which shows a changed source, and fields that nothing reads."""

import hashlib
import json
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from torl.base.errors import DataError
from torl.base.types import Problem


class SourceDigest:
    """The number and the hash of the rows that were read, before any is left out, and whether all were read."""

    def __init__(self) -> None:
        """Begin without rows."""
        self._count = 0
        self._digest = hashlib.sha256()
        self._ended = False

    def problems(self, problems: Iterable[Problem]) -> Iterator[Problem]:
        """Yield problems, and add each one without its metadata."""
        for problem in problems:
            self._add(problem.id, problem.question, problem.answer)
            yield problem
        self._ended = True

    def examples(
        self, rows: Iterable[tuple[str, Mapping[str, Any] | DataError]]
    ) -> Iterator[tuple[str, Mapping[str, Any] | DataError]]:
        """Yield examples, and the errors of invalid ones, and add each one."""
        for location, row in rows:
            self._add(
                location, str(row) if isinstance(row, DataError) else json.dumps(row, sort_keys=True, default=str)
            )
            yield location, row
        self._ended = True

    def _add(self, *texts: str) -> None:
        self._count += 1
        self._digest.update(json.dumps(texts).encode())

    def entry(self) -> dict[str, Any]:
        """Return the count, the hash and whether the source has no other rows, as plain JSON."""
        return {"rows": self._count, "sha256": self._digest.hexdigest(), "ended": self._ended}


def is_digest(entry: Mapping[str, Any], recorded: Mapping[str, Any]) -> bool:
    """Whether a recorded entry, which may name its source as well, has the count and the hash of an entry."""
    return all(name in recorded and recorded[name] == value for name, value in entry.items())


def digest_problems(problems: Iterable[Problem], count: int | None = None) -> dict[str, Any]:
    """Return the entry of the first `count` problems, or of all (`SourceDigest.entry`)."""
    digest = SourceDigest()
    deque(islice(digest.problems(problems), count), maxlen=0)
    return digest.entry()


def digest_examples(rows: Iterable[tuple[str, Mapping[str, Any] | DataError]]) -> dict[str, Any]:
    """Return the entry of examples (`SourceDigest.entry`)."""
    digest = SourceDigest()
    deque(digest.examples(rows), maxlen=0)
    return digest.entry()


@dataclass(slots=True)
class UnreadFields:
    """Fields of rows that are not read, with the numbers of rows that have them."""

    rows: int = 0
    """Number of rows with such a field."""
    counts: Counter[str] = field(default_factory=Counter)
    """Numbers of rows by field."""
    read: set[str] = field(default_factory=set)
    """Fields that were read from a row: they are not counted."""

    def add(self, names: Collection[str]) -> None:
        """Count the fields of a row."""
        self.counts.update(names)
        self.rows += bool(names)

    def __bool__(self) -> bool:
        """Whether a row has such a field."""
        return self.rows > 0

    def __str__(self) -> str:
        """Return the fields: "15 rows have fields that are not read: a (12 rows), b (3 rows)"."""
        names = ", ".join(f"{name} ({_rows(count)})" for name, count in self.counts.most_common())
        return f"{_rows(self.rows)} {'has' if self.rows == 1 else 'have'} fields that are not read: {names}"


def _rows(count: int) -> str:
    return f"{count:,} row{'s' * (count != 1)}"


class WatchedFields(Mapping[str, Any]):
    """The metadata of a problem, which adds the names that a template reads to a set."""

    def __init__(self, fields: Mapping[str, Any], read: set[str]) -> None:
        """Wrap the metadata of a problem."""
        self._fields, self._read = fields, read

    def __getitem__(self, name: str) -> Any:
        self._read.add(name)
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)
