"""Bring an index up to date with its files, which may grow, be replaced or disappear while a run writes them."""

import os
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from torl.base.inputs import open_file, reason, stat_file
from torl.run.records.rows import parse_row
from torl_lab.view.facets import DAMAGED, Facts, IndexedRow, facts_of
from torl_lab.view.index import (
    DamagedIndexError,
    IndexedFile,
    add_file,
    add_rows,
    damage_as_error,
    indexed_files,
    open_index,
    remove_file,
    remove_index,
    transaction,
    update_file,
)
from torl_lab.view.sources import Source, Target
from torl_lab.view.tokens import store_vocabulary

_BATCH_ROWS: Final = 2000
_BATCH_BYTES: Final = 16 << 20
_BATCH_SECONDS: Final = 0.5
_BLOCK_BYTES: Final = 1 << 20
_TAIL_BYTES: Final = 4096


class Indexer:
    """Keeps the index of a target up to date. A batch of rows is one transaction, so that readers wait briefly.

    Several processes may index the same target: each batch starts from the state that the index has then.
    """

    def __init__(self, target: Target, path: Path) -> None:
        """Open the index, which is created or built again if necessary.

        Raises:
            OSError: The index cannot be opened.
        """
        self._target = target
        self._path = path
        self.unreadable: list[str] = []
        """Files of the last update that cannot be read, each with the reason."""
        self._database = self._open()

    def _open(self) -> sqlite3.Connection:
        try:
            database = open_index(self._path, create=True)
        except DamagedIndexError:
            remove_index(self._path)
            database = open_index(self._path, create=True)
        self._inode = self._path.stat().st_ino
        return database

    def close(self) -> None:
        """Close the index."""
        self._database.close()

    def update(self, on_progress: Callable[[float], object] = lambda _: None) -> int:
        """Index everything that was written since the last update, and return the number of changes.

        An unfinished last line is left for a later update. A damaged index is built again. A file that cannot be read
        is named in `unreadable`, and has no rows in the index.

        Args:
            on_progress: Callback after each batch, with the indexed fraction of the bytes of all files.

        Raises:
            sqlite3.OperationalError: The index cannot be written.
        """
        if not self._path.exists() or self._path.stat().st_ino != self._inode:
            self._database.close()  # another process has removed it
            self._database = self._open()
        try:
            with damage_as_error():
                return self._update(on_progress)
        except DamagedIndexError:
            self._database.close()
            remove_index(self._path)
            self._database = self._open()
            return self._update(on_progress)

    def store_vocabulary(self) -> bool:
        """Store the texts of the model's tokens, if its tokenizer is on this machine; return whether they are stored.

        Raises:
            DamagedIndexError: The index is damaged.
        """
        return store_vocabulary(self._database, self._target)

    def _update(self, on_progress: Callable[[float], object]) -> int:
        self.unreadable = []
        stats: dict[Source, os.stat_result] = {}
        for source in self._target.sources():
            try:
                stats[source] = stat_file(source.path)
            except OSError as error:
                self._leave_out(source, error)
        known = indexed_files(self._database)
        changes = self._remove(set(known) - {source.name for source in stats})
        pending = {
            source: stat.st_size
            for source, stat in stats.items()
            if (file := known.get(source.name)) is None
            or (file.inode, file.size, file.mtime_ns) != (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        }
        total = sum(stat.st_size for stat in stats.values())
        done = total - sum(pending.values())
        for source, size in pending.items():
            try:
                for position in self._index_file(source):
                    changes += 1
                    on_progress((done + position) / max(1, total))
            except OSError as error:
                self._leave_out(source, error)
                changes += self._remove({source.name})
            done += size
        return changes

    def _leave_out(self, source: Source, error: OSError) -> None:
        """Note why a file cannot be read, unless it was removed, as by a resumed run."""
        if os.path.lexists(source.path):
            self.unreadable.append(f"{source.path}: cannot be read: {reason(error)}")

    def _remove(self, names: set[str]) -> int:
        if names:
            with transaction(self._database):
                for name, file in indexed_files(self._database).items():
                    if name in names:
                        remove_file(self._database, file)
        return len(names)

    def _index_file(self, source: Source) -> Iterator[int]:
        """Index the new lines of a file in batches; yield the number of bytes indexed after each batch."""
        with open_file(source.path) as opened:
            descriptor = opened.fileno()
            stat, is_done = os.fstat(descriptor), False
            while not is_done:
                with transaction(self._database):
                    file = indexed_files(self._database).get(source.name)
                    if file is not None and not _continues(file, stat, descriptor):
                        remove_file(self._database, file)
                        file = None
                    file = file or add_file(self._database, source.name, source.set_name)
                    position, is_done = self._add_batch(file, descriptor, stat)
                yield position

    def _add_batch(self, file: IndexedFile, descriptor: int, stat: os.stat_result) -> tuple[int, bool]:
        """Add a batch of lines; return the position after it, and whether it is the last one."""
        spans: list[tuple[int, int]] = []
        facts: list[Facts] = []
        started, position, checksum, is_done = time.monotonic(), file.indexed, file.checksum, True
        for line in _lines(descriptor, file.indexed, stat.st_size):
            spans.append((position, len(line) - 1))
            facts.append(facts_of_line(line))
            position += len(line)
            checksum = zlib.crc32(line, checksum)
            is_full = len(facts) >= _BATCH_ROWS or position - file.indexed >= _BATCH_BYTES
            if is_full or time.monotonic() - started > _BATCH_SECONDS:
                is_done = False
                break
        if facts:
            add_rows(self._database, file, spans, facts)
        state = file._replace(
            inode=stat.st_ino,
            size=stat.st_size,
            mtime_ns=stat.st_mtime_ns if is_done else 0,
            indexed=position,
            lines=file.lines + len(facts),
            checksum=checksum,
            tail=_checksum(descriptor, max(0, position - _TAIL_BYTES), position),
        )
        update_file(self._database, state)
        return position, is_done


def facts_of_line(line: bytes) -> Facts:
    """Return the facts of a line; `DAMAGED` if it is not a trajectory."""
    try:
        return facts_of(parse_row(line, IndexedRow))
    except (ValueError, OverflowError):
        return DAMAGED


def _continues(file: IndexedFile, stat: os.stat_result, descriptor: int) -> bool:
    """Whether a file begins with the lines that were indexed.

    A file that has grown is compared at the end of these lines; any other changed file as a whole.
    """
    if stat.st_size < file.indexed:
        return False
    if stat.st_ino == file.inode and (stat.st_size > file.size or not file.mtime_ns):
        return _checksum(descriptor, max(0, file.indexed - _TAIL_BYTES), file.indexed) == file.tail
    return _checksum(descriptor, 0, file.indexed) == file.checksum


def _checksum(descriptor: int, start: int, stop: int) -> int:
    """Return the CRC-32 of the bytes between two positions; -1 if the file is shorter."""
    checksum = 0
    for block in _blocks(descriptor, start, stop):
        checksum = zlib.crc32(block, checksum)
        start += len(block)
    return -1 if start < stop else checksum


def _blocks(descriptor: int, start: int, stop: int) -> Iterator[bytes]:
    while start < stop and (block := os.pread(descriptor, min(_BLOCK_BYTES, stop - start), start)):
        yield block
        start += len(block)


def _lines(descriptor: int, start: int, stop: int) -> Iterator[bytes]:
    """Yield the complete lines between two positions, with their ends."""
    parts: list[bytes] = []
    for block in _blocks(descriptor, start, stop):
        *complete, rest = block.split(b"\n")
        for line in complete:
            yield b"".join([*parts, line, b"\n"])
            parts = []
        if rest:
            parts.append(rest)
