"""The hash of the rows that a run has read of a source, which tells a changed source from a changed setting."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from torl.types import Problem


class SourceDigest:
    """The number and the hash of the rows that were read, before any is left out."""

    def __init__(self) -> None:
        """Begin without rows."""
        self._count = 0
        self._digest = hashlib.sha256()

    def add(self, *texts: str) -> None:
        """Add a row as texts."""
        self._count += 1
        self._digest.update(json.dumps(texts).encode())

    def add_problem(self, problem: Problem) -> None:
        """Add a problem without its metadata."""
        self.add(problem.id, problem.question, problem.answer)

    def add_example(self, location: str, row: Mapping[str, Any] | Exception) -> None:
        """Add an example, or the error of an invalid one."""
        text = str(row) if isinstance(row, Exception) else json.dumps(row, sort_keys=True, default=str)
        self.add(location, text)

    def entry(self) -> dict[str, Any]:
        """Return the count and the hash as plain JSON."""
        return {"rows": self._count, "sha256": self._digest.hexdigest()}


def digest_problems(problems: Iterable[Problem]) -> dict[str, Any]:
    """Return the entry of problems (`SourceDigest.entry`)."""
    digest = SourceDigest()
    for problem in problems:
        digest.add_problem(problem)
    return digest.entry()


def digest_examples(rows: Iterable[tuple[str, Mapping[str, Any] | Exception]]) -> dict[str, Any]:
    """Return the entry of examples (`SourceDigest.entry`)."""
    digest = SourceDigest()
    for location, row in rows:
        digest.add_example(location, row)
    return digest.entry()
