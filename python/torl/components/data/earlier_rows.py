"""The rows that a problem file had so far: copies are skipped, and repeated ids are invalid."""

from array import array
from bisect import bisect_left
from dataclasses import replace

from torl.base.types import Problem
from torl.components.data.files import InvalidRowError, SkippedRowError
from torl.components.data.values import row_id

_MAX_DIGITS = 19  # of the number of a row


class EarlierRows:
    """The earlier rows of a file: 130 bytes for each row with an id, and 8 for each row without."""

    def __init__(self) -> None:
        self._contents: dict[int, int] = {}  # hashes of the contents of rows with an id, by hashes of the ids
        self._unnamed = array("Q")  # numbers of the rows without an id

    def add(self, location: str, problem: Problem, *, replaceable: bool = False) -> Problem:
        """Remember a row, and return its problem.

        Args:
            location: Location of the row.
            problem: Problem of the row.
            replaceable: Whether the row gets the id of its location if another row has its id.

        Raises:
            SkippedRowError: The row is a copy.
            InvalidRowError: Another row has its id.
        """
        kind, _, number = row_id(location).rpartition("-")
        if problem.id == row_id(location) and hash(problem.id) not in self._contents:
            self._unnamed.append(int(number))
            return problem
        content, before = hash((problem.question, problem.answer)), len(self._contents)
        first = self._contents.setdefault(hash(problem.id), content)
        if first != content and replaceable:
            self._contents.setdefault(hash((problem.id, content)), content)  # so that copies of this row are found
            if len(self._contents) > before:
                return self.add(location, replace(problem, id=row_id(location)))
        elif first != content or self._has_unnamed(problem.id, kind):
            message = f"the id {problem.id!r} was already used for another problem"
            raise InvalidRowError(location, "repeated_id", message)
        if len(self._contents) == before:
            raise SkippedRowError(location, "copy", f"a copy of the row with the id {problem.id!r}")
        return problem

    def _has_unnamed(self, identifier: str, kind: str) -> bool:
        """Whether an earlier row without an id is called so: "line-3" of the third line."""
        number = identifier.removeprefix(f"{kind}-")
        if number == identifier or not number.isdecimal() or len(number) > _MAX_DIGITS:
            return False
        place = bisect_left(self._unnamed, int(number))
        return place < len(self._unnamed) and f"{kind}-{self._unnamed[place]}" == identifier
