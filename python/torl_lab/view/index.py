"""The index of a run's trajectories: an SQLite database that is built from the files and can be built again.

It has the facets of each line as binary records, which a reader maps to arrays (a million rows are 80 MB and are read
in a fraction of a second); the problems; and a full-text index of the responses, if SQLite has FTS5. The texts
themselves stay in the files, whose byte offsets the facets contain.

Rows of a file that was replaced are removed with their chunk. Their words stay, under row numbers that are not used
again.
"""

import hashlib
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from torl_lab.view.facets import FACETS, Facts

VERSION: Final = 2
"""Version of the schema, as in `sources.INDEX_FILE`. An index of another version is built again."""
MAX_INDEXED_CHARACTERS: Final = 1 << 20
"""Characters of a response whose words can be found."""

FacetArray = npt.NDArray[np.void]

_TIMEOUT_SECONDS = 30.0
_SCHEMA = """
CREATE TABLE files(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, set_id INTEGER NOT NULL, inode INTEGER NOT NULL,
    size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL, indexed INTEGER NOT NULL, lines INTEGER NOT NULL,
    checksum INTEGER NOT NULL, tail INTEGER NOT NULL);
CREATE TABLE sets(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE problems(id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, name TEXT NOT NULL, question TEXT NOT NULL,
    answer TEXT NOT NULL);
CREATE INDEX problems_of_name ON problems(name);
CREATE TABLE chunks(id INTEGER PRIMARY KEY AUTOINCREMENT, file INTEGER NOT NULL, first INTEGER NOT NULL,
    count INTEGER NOT NULL, checksum INTEGER NOT NULL, facets BLOB NOT NULL);
CREATE INDEX chunks_of_file ON chunks(file);
CREATE TABLE state(next_row INTEGER NOT NULL, removals INTEGER NOT NULL);
INSERT INTO state VALUES (0, 0);
CREATE TABLE tokens(id INTEGER PRIMARY KEY, bytes BLOB NOT NULL);
"""
_CODE = "SELECT count(*) FROM sqlite_master WHERE type IN ('view', 'trigger')"  # which may never end
_WORDS = "CREATE VIRTUAL TABLE words USING fts5(text, content='', detail='none', columnsize=0, tokenize='unicode61')"


class IndexedFile(NamedTuple):
    """The state of a file when it was indexed."""

    id: int  # number in the index
    name: str  # `Source.name`
    inode: int = 0
    size: int = 0  # in bytes
    mtime_ns: int = 0  # of the last change; 0 until all lines are indexed
    indexed: int = 0  # bytes of the indexed lines
    lines: int = 0  # number of the indexed lines
    checksum: int = 0  # CRC-32 of the indexed lines
    tail: int = 0  # CRC-32 of their last bytes


class DamagedIndexError(Exception):
    """The index cannot be read, or was built by another version."""


def open_index(path: Path, *, create: bool = False) -> sqlite3.Connection:
    """Open an index.

    Args:
        path: Path of the index.
        create: Whether to create a missing index.

    Raises:
        DamagedIndexError: The file is not an index of this version.
        OSError: The index does not exist or cannot be opened.
    """
    if not create and not path.exists():
        raise FileNotFoundError(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        database = sqlite3.connect(path, timeout=_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False)
    except sqlite3.OperationalError as error:
        raise OSError(f"{path}: cannot be opened: {error}") from error
    try:
        with damage_as_error():
            if create:
                _create(database)
            if (version := database.execute("PRAGMA user_version").fetchone()[0]) != VERSION:
                raise DamagedIndexError(f"{path}: version {version} of the index, expected {VERSION}")
            if database.execute(_CODE).fetchone()[0]:
                raise DamagedIndexError(f"{path}: the index has views or triggers")
    except BaseException:
        database.close()
        raise
    return database


def _create(database: sqlite3.Connection) -> None:
    with transaction(database):
        if database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            return
        for statement in _SCHEMA.split(";"):
            database.execute(statement)
        with suppress(sqlite3.OperationalError):  # a build of SQLite without FTS5
            database.execute(_WORDS)
        database.execute(f"PRAGMA user_version = {VERSION}")


def remove_index(path: Path) -> None:
    """Remove an index with its journal."""
    for file in (path, path.with_name(f"{path.name}-journal")):
        file.unlink(missing_ok=True)


@contextmanager
def damage_as_error() -> Iterator[None]:
    """Turn errors about the content of a database into `DamagedIndexError`, but not a full disk or a lock."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if "no such" in str(error) or "malformed" in str(error):
            raise DamagedIndexError(str(error)) from error
        raise
    except sqlite3.DatabaseError as error:
        raise DamagedIndexError(str(error)) from error


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    """Run a block as a transaction that excludes other writers."""
    database.execute("BEGIN IMMEDIATE")
    with database:
        yield


# --- writing ----------------------------------------------------------------------------------------------


def indexed_files(database: sqlite3.Connection) -> dict[str, IndexedFile]:
    """Return the indexed files by name."""
    rows = database.execute(f"SELECT {', '.join(IndexedFile._fields)} FROM files")
    return {row[1]: IndexedFile(*row) for row in rows}


def add_file(database: sqlite3.Connection, name: str, set_name: str) -> IndexedFile:
    """Add a file without rows."""
    database.execute("INSERT OR IGNORE INTO sets(name) VALUES (?)", (set_name,))
    (set_id,) = database.execute("SELECT id FROM sets WHERE name = ?", (set_name,)).fetchone()
    inserted = database.execute(
        "INSERT INTO files(name, set_id, inode, size, mtime_ns, indexed, lines, checksum, tail) "
        "VALUES (?, ?, 0, 0, 0, 0, 0, 0, 0)",
        (name, set_id),
    )
    return IndexedFile(int(inserted.lastrowid or 0), name)


def remove_file(database: sqlite3.Connection, file: IndexedFile) -> None:
    """Remove a file with its rows."""
    database.execute("DELETE FROM chunks WHERE file = ?", (file.id,))
    database.execute("DELETE FROM files WHERE id = ?", (file.id,))
    database.execute("UPDATE state SET removals = removals + 1")


def update_file(database: sqlite3.Connection, file: IndexedFile) -> None:
    """Store the state of a file."""
    database.execute(
        "UPDATE files SET inode = ?, size = ?, mtime_ns = ?, indexed = ?, lines = ?, checksum = ?, tail = ? "
        "WHERE id = ?",
        (*file[2:], file.id),
    )


def add_rows(
    database: sqlite3.Connection, file: IndexedFile, spans: Sequence[tuple[int, int]], facts: list[Facts]
) -> None:
    """Add the next lines of a file.

    Args:
        database: The index, in a transaction.
        file: File before the lines.
        spans: Offset and length of each line, in bytes.
        facts: Facts of each line.
    """
    (set_id,) = database.execute("SELECT set_id FROM files WHERE id = ?", (file.id,)).fetchone()
    (first,) = database.execute("SELECT next_row FROM state").fetchone()
    database.execute("UPDATE state SET next_row = ?", (first + len(facts),))
    problems = dict.fromkeys(each.problem for each in facts)
    numbers = {problem: 0 if problem is None else _problem_number(database, problem) for problem in problems}
    facets = np.array([each.facets for each in facts], FACETS)
    facets["offset"], facets["length"] = np.transpose(spans)
    facets["problem"] = [numbers[each.problem] for each in facts]
    facets["file"], facets["set"] = file.id, set_id
    facets["line"] = np.arange(file.lines, file.lines + len(facts))
    data = facets.tobytes()
    database.execute(
        "INSERT INTO chunks(file, first, count, checksum, facets) VALUES (?, ?, ?, ?, ?)",
        (file.id, first, len(facts), zlib.crc32(data), data),
    )
    if has_words(database):
        rows = [(first + index, storable(each.text[:MAX_INDEXED_CHARACTERS])) for index, each in enumerate(facts)]
        database.executemany("INSERT INTO words(rowid, text) VALUES (?, ?)", rows)


def _problem_number(database: sqlite3.Connection, problem: Sequence[str]) -> int:
    key = problem_key(problem)
    found = database.execute("SELECT id FROM problems WHERE key = ?", (key,)).fetchone()
    if found is not None:
        return int(found[0])
    insertion = "INSERT INTO problems(key, name, question, answer) VALUES (?, ?, ?, ?)"
    return int(database.execute(insertion, (key, *map(storable, problem))).lastrowid or 0)


def problem_key(problem: Sequence[str]) -> str:
    """Return the id of a problem with a checksum of its question and answer.

    Problems of several sets often share ids, such as "line-1".
    """
    name, *content = map(storable, problem)
    return f"{name}#{hashlib.sha256(chr(0).join(content).encode()).hexdigest()[:8]}"


def storable(text: str) -> str:
    """Return a text that UTF-8 can encode, with "?" for lone surrogates."""
    return text.encode("utf-8", errors="replace").decode("utf-8")


# --- reading ----------------------------------------------------------------------------------------------


def has_words(database: sqlite3.Connection) -> bool:
    """Whether the index has the words of responses."""
    return database.execute("SELECT 1 FROM sqlite_master WHERE name = 'words'").fetchone() is not None


def removals(database: sqlite3.Connection) -> int:
    """Return how many files were removed or replaced so far."""
    return int(database.execute("SELECT removals FROM state").fetchone()[0])


def chunks_after(database: sqlite3.Connection, last: int) -> Iterator[tuple[int, int, FacetArray]]:
    """Yield the number, the number of the first row, and the facets of each chunk with a number above `last`.

    Raises:
        DamagedIndexError: A chunk is damaged.
    """
    query = "SELECT id, first, count, checksum, facets FROM chunks WHERE id > ? ORDER BY id"
    for number, first, count, checksum, data in database.execute(query, (last,)):
        if len(data) != count * FACETS.itemsize or zlib.crc32(data) != checksum:
            raise DamagedIndexError(f"chunk {number} is damaged")
        yield number, first, np.frombuffer(data, FACETS)


def names_by_id(database: sqlite3.Connection, table: str) -> dict[int, str]:
    """Return the names in the table `files` or `sets` by number."""
    return dict(database.execute(f"SELECT id, name FROM {table}"))
