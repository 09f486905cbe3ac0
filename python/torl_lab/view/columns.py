"""The facets of a target in memory, one array for each column, which follow the index as it grows."""

import re
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from torl_lab.view.facets import FACETS
from torl_lab.view.index import (
    DamagedIndexError,
    chunks_after,
    damage_as_error,
    has_words,
    names_by_id,
    open_index,
    removals,
    remove_index,
)
from torl_lab.view.sources import Target
from torl_lab.view.tokens import token_texts

Array = npt.NDArray[Any]

_MAX_WORD_RESULTS: Final = 16
_MIN_CAPACITY: Final = 1024


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """The rows of an index at one time.

    Attributes:
        arrays: Column of each facet by name, with one entry for each row.
        rows: Row number of each entry in the index, ascending within each chunk.
        files: Names of files by number.
        sets: Names of sets by number.
        revision: Number that differs between any two states of the rows.
    """

    arrays: Mapping[str, Array]
    rows: Array
    files: Mapping[int, str]
    sets: Mapping[int, str]
    revision: int

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str) -> Array:
        return self.arrays[name]


@dataclass(frozen=True, slots=True)
class IndexedProblem:
    """A problem of the index."""

    key: str  # the id with a checksum of the question and the answer (`index.problem_key`)
    name: str  # the id
    question: str
    answer: str  # the reference


class IndexReader:
    """Reads the index of a target, which another process writes. Thread-safe."""

    _removals: int
    _last_chunk: int
    _count: int

    def __init__(self, target: Target, path: Path) -> None:
        """Set the target and the path of its index, which need not exist yet."""
        self.target = target
        self._path = path
        self._lock = threading.RLock()
        self._database: sqlite3.Connection | None = None
        self._inode = 0
        self._revision = 0
        self.rows_with_words = lru_cache(_MAX_WORD_RESULTS)(self._find_words)
        self._clear(-1)
        self._publish({}, {})

    def columns(self) -> Columns:
        """Return the rows as of the last `refresh`."""
        return self._columns

    def refresh(self) -> bool:
        """Read the rows that were added or removed since the last call; return whether there were any.

        A missing or damaged index has no rows until it was built again.
        """
        with self._lock:
            try:
                return self._refresh()
            except FileNotFoundError:
                return self._reset()
            except DamagedIndexError:
                with suppress(OSError):
                    remove_index(self._path)  # the indexer builds it again
                return self._reset()

    def problems(self, numbers: Sequence[int]) -> dict[int, IndexedProblem]:
        """Return at most 500 problems by number."""
        marks = ",".join("?" * len(numbers))
        query = f"SELECT id, key, name, question, answer FROM problems WHERE id IN ({marks}) ORDER BY id"
        with self.database() as database:
            return {number: IndexedProblem(*found) for number, *found in database.execute(query, list(numbers))}

    def problems_matching(self, text: str, *, exactly: bool = False) -> list[int]:
        """Return the numbers of the problems with this key or name, or with this text in the name or the question."""
        condition = "key = ?1 OR name = ?1" if exactly else "instr(lower(name || char(10) || question), lower(?1))"
        with self.database() as database:
            return [number for (number,) in database.execute(f"SELECT id FROM problems WHERE {condition}", (text,))]

    def token_texts(self, ids: Sequence[int]) -> list[str] | None:
        """Return the text that each token completes (`tokens.token_texts`)."""
        with self.database() as database:
            return token_texts(database, ids)

    def _find_words(self, query: str, columns: Columns) -> Array:
        """Return a mask of the rows whose response has all words of a query.

        Raises:
            ValueError: The index has no words, or the query has no word.
        """
        with self.database() as database:
            if not has_words(database):
                raise ValueError("words cannot be searched: this build of SQLite has no FTS5; use a regular expression")
            rows = match_words(database, query)
        found = np.zeros(int(columns.rows.max(initial=-1)) + 1, np.bool_)
        found[rows[rows < len(found)]] = True
        return np.take(found, columns.rows)

    @contextmanager
    def database(self) -> Iterator[sqlite3.Connection]:
        """Lend the connection to one thread.

        Raises:
            LookupError: The index does not exist yet, or is being built again.
        """
        with self._lock:
            if self._database is None:
                raise LookupError(f"{self.target.label}: the index is being built")
            try:
                with damage_as_error():
                    yield self._database
            except DamagedIndexError as error:
                self._reset()
                raise LookupError(f"{self.target.label}: the index is being built again") from error

    def close(self) -> None:
        """Close the index."""
        with self._lock:
            self._reset()

    def _refresh(self) -> bool:
        inode = self._path.stat().st_ino
        if self._database is None or inode != self._inode:
            self._reset()
            self._database, self._inode = open_index(self._path), inode
        with damage_as_error():
            self._database.execute("BEGIN")  # one state for all of the queries
            with self._database:
                return self._read(self._database)

    def _read(self, database: sqlite3.Connection) -> bool:
        removed = removals(database)
        is_reset = removed != self._removals
        if is_reset:
            self._clear(removed)
        before = self._last_chunk
        for number, first, facets in chunks_after(database, self._last_chunk):
            self._append(first, facets)
            self._last_chunk = number
        if not is_reset and self._last_chunk == before:
            return False
        self._publish(names_by_id(database, "files"), names_by_id(database, "sets"))
        return True

    def _append(self, first: int, facets: Array) -> None:
        """Append rows. Arrays that readers hold keep their entries: full ones are replaced by larger copies."""
        count = self._count + len(facets)
        for name, array in self._arrays.items():
            if len(array) < count:
                larger = np.zeros(max(_MIN_CAPACITY, count + count // 2), array.dtype)
                larger[: self._count] = array[: self._count]
                array = self._arrays[name] = larger
            array[self._count : count] = facets[name] if name else np.arange(first, first + len(facets))
        self._count = count

    def _clear(self, removed: int) -> None:
        """Forget all rows, as of an index from which this many files were removed."""
        self._removals, self._last_chunk, self._count = removed, 0, 0
        self._arrays: dict[str, Array] = {name: np.zeros(0, FACETS[name]) for name in FACETS.names or ()}
        self._arrays[""] = np.zeros(0, np.int64)  # row numbers

    def _publish(self, files: Mapping[int, str], sets: Mapping[int, str]) -> None:
        self._revision += 1
        views = {name: array[: self._count] for name, array in self._arrays.items()}
        self._columns = Columns(views, views.pop(""), files, sets, self._revision)
        self.rows_with_words.cache_clear()

    def _reset(self) -> bool:
        was_empty = not len(self._columns)
        if self._database is not None:
            self._database.close()
        self._database = None
        self._clear(-1)
        self._publish({}, {})
        return not was_empty


_WORD = re.compile(r"([^\W_]+)(\*?)")


def match_words(database: sqlite3.Connection, query: str) -> Array:
    """Return the numbers of the rows that contain all words of a query, in any order, ignoring case and accents.

    "sum*" matches words that begin with "sum". Other characters separate words, as in the indexed text.

    Raises:
        ValueError: The query has no word.
    """
    words = [f'"{word}"{star}' for word, star in _WORD.findall(query)]
    if not words:
        raise ValueError(f"the query {query!r} has no word: use a regular expression for other characters")
    (rows,) = database.execute(
        "SELECT group_concat(rowid) FROM words WHERE words MATCH ?", (" AND ".join(words),)
    ).fetchone()
    return np.fromstring(rows, np.int64, sep=",") if rows else np.zeros(0, np.int64)
