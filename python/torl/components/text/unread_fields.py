"""Fields of rows that nothing reads, counted, so that a run says what it leaves out."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


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
