"""Resuming an output, only with the settings, the model and the problems that its episodes were played with.

Files next to the output record them. They are written whole before the first episode.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torl.base.errors import ConfigError, RecordError
from torl.base.inputs import read_file
from torl.base.types import Problem
from torl.run.records.files import write_if_changed
from torl.run.records.receipt import file_entry

_HASH_THREADS = 8
_OTHER_FILES = ("*.json", "*.jinja", "*.model")


@dataclass(frozen=True, slots=True)
class PlayedOutput:
    """An output, and the comparison of its records with what a command is about to play with."""

    path: Path
    """The file or directory of the episodes."""
    played: bool
    """Whether it has episodes. Without any, every record is written anew."""

    def require(self, record: Path, content: str, subject: str) -> None:
        """Write what the episodes are played with, or compare it with the record of earlier ones.

        Args:
            record: File of the record.
            content: Its content.
            subject: What the record describes, such as "settings".

        Raises:
            ConfigError: The output has episodes that were played with others, or without a record.
            RecordError: The record cannot be read or written.
        """
        if self.played and self._read(record, subject) != content.encode():
            raise ConfigError(f"{self.path} was played with other {subject} (see {record.name}): choose another output")
        write_if_changed(record, content.encode())

    def require_model(self, record: Path, model: Path) -> None:
        """Write the hashes of a model's files, or compare them with the record of earlier episodes.

        A file that the record has seen is not read again. It is the same file if its inode, size and times are equal:
        every write sets the time of change, which copies with old times of modification have as well.

        Raises:
            ConfigError: The output has episodes of a model with another file, or without a record.
            RecordError: A file cannot be read, or the record is damaged or cannot be written.
        """
        known = _decode(self._read(record, "model"), record) if self.played or record.exists() else {}
        found = _identify(model, known)
        changed = [name for name in known | found if _hash(known, name) != _hash(found, name)]
        if self.played and changed:
            raise ConfigError(
                f"{self.path} was played with another model: {model / min(changed)} has changed since (see "
                f"{record.name}): choose another output"
            )
        write_if_changed(record, json.dumps(found, indent=1).encode() + b"\n")

    def require_problems(self, problems: Iterable[Problem], played: Mapping[str, str]) -> None:
        """Compare problems with the ones of the same ids that were played.

        Args:
            problems: The problems.
            played: Digests of the played problems by id (`problem_digest`).

        Raises:
            ConfigError: A problem has another question or answer.
        """
        for problem in problems:
            if problem.id in played and played[problem.id] != problem_digest(problem):
                raise ConfigError(
                    f"{self.path} was played with another problem {problem.id!r}: restore the problems, or choose "
                    "another output"
                )

    def _read(self, record: Path, subject: str) -> bytes:
        try:
            return read_file(record)
        except FileNotFoundError as error:
            raise ConfigError(
                f"{self.path} has episodes, but {record.name} with their {subject} is missing: choose another output"
            ) from error
        except OSError as error:
            raise RecordError(f"{record}: cannot be read: {error.strerror}") from error


def problem_digest(problem: Problem) -> str:
    """Return a digest of a problem's question and answer."""
    text = json.dumps([problem.question, problem.answer])
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _identify(model: Path, known: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return the size, the hash and the stamp of each file of a model by its name."""
    weights = sorted(model.glob("*.safetensors")) or sorted(model.glob("*.bin"))  # as the engine chooses them
    paths = [*weights, *(path for pattern in _OTHER_FILES for path in sorted(model.glob(pattern)))]
    with ThreadPoolExecutor(_HASH_THREADS) as threads:
        entries = threads.map(lambda path: _entry(path, known.get(path.name)), paths)
        return {path.name: entry for path, entry in zip(paths, entries, strict=True)}


def _entry(path: Path, known: Mapping[str, Any] | None) -> Mapping[str, Any]:
    try:
        state = path.stat()
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror}") from error
    stamp = [state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns]
    if known is not None and known["stamp"] == stamp:
        return known
    return {**file_entry(path), "stamp": stamp}


def _hash(entries: Mapping[str, Mapping[str, Any]], name: str) -> Any:
    return entries[name]["sha256"] if name in entries else None


def _decode(content: bytes, record: Path) -> dict[str, Mapping[str, Any]]:
    try:
        entries: dict[str, Mapping[str, Any]] = json.loads(content)
        if not all({"sha256", "stamp"} <= entry.keys() for entry in entries.values()):
            raise ValueError("a hash is missing")
    except (AttributeError, ValueError) as error:
        raise RecordError(f"{record}: damaged: {error}") from error
    return entries
