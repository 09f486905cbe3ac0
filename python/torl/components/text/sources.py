"""The hash of the rows that a run has read of a source, which tells a changed source from a changed setting."""

import hashlib
import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
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
