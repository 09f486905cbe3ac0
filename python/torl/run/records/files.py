"""The files of a run directory, and atomic writes with errors that name the file.

config.toml                                  configuration of the latest start; `config.1.toml`, ... of earlier starts.
                                             The first line has the first step that it applies to
metrics.jsonl                                one row per step and evaluation: {"step", "time", name: value}
examples.jsonl                               one row per step of fine-tuning: {"step", "examples": ids in their order}
trajectories/step_000012.jsonl               one row per trajectory of a training step
tokens/step_000012.npz                       the learner's numbers of the tokens of some groups (`records.tokens`)
trajectories/evaluation_000000_<set>.jsonl   one row per trajectory of an evaluation; if it also samples, its greedy
                                             responses are in ..._<set>.greedy.jsonl
"""

import contextlib
import errno
import fcntl
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torl.base.errors import ConfigError, RecordError
from torl.base.paths import FILE_NAME_PATTERN


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[Any]:
    """Open a temporary file that replaces `path` once it is on disk, and is removed on failure.

    Raises:
        RecordError: The file could not be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with record_errors(path):
            with temporary.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def write_if_changed(path: Path, data: bytes) -> None:
    """Replace a file atomically, and make its directory, unless it has this content already.

    Raises:
        RecordError: The file could not be read or written.
    """
    with record_errors(path):
        if path.exists() and path.read_bytes() == data:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(data)


def append_atomically(path: Path, data: bytes) -> None:
    """Append all of `data` to a file, or nothing.

    Raises:
        RecordError: The file could not be written.
    """
    with record_errors(path), path.open("ab", buffering=0) as file:
        write_or_roll_back(file.fileno(), data)


def write_or_roll_back(descriptor: int, data: bytes) -> None:
    """Write all of `data`; on failure, as on a full disk, remove the part already written.

    Raises:
        OSError: The data could not be written.
    """
    written = os.write(descriptor, data)
    if written == len(data):
        return
    try:
        while written < len(data):
            written += os.write(descriptor, data[written:])
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
        raise


@contextlib.contextmanager
def record_errors(path: Path) -> Iterator[None]:
    """Turn an OSError into a RecordError that names the file.

    Raises:
        RecordError: The block raised an OSError.
    """
    try:
        yield
    except OSError as error:
        raise RecordError(f"{error.filename or path}: cannot be written: {error.strerror}") from error


CONFIG_FILE = "config.toml"
METRICS_FILE = "metrics.jsonl"
EXAMPLES_FILE = "examples.jsonl"
REPORT_FILE = "report.html"
SUMMARY_FILE = "summary.json"
EXPORT_DIRECTORY = "model"
"""The exported model after the last step."""
TRAJECTORY_DIRECTORY = "trajectories"
TOKEN_DIRECTORY = "tokens"

_STEP_OF_FILE = re.compile(r"(?:step_(\d{6,})|evaluation_(\d{6,})_(.+))\.jsonl")


def trajectory_file(run_directory: Path, step: int, evaluation_set: str | None = None) -> Path:
    """Return the trajectory file of a step, or of an evaluation after that step.

    Raises:
        RecordError: The name of the evaluation set cannot be part of a file name.
    """
    if evaluation_set is None:
        return run_directory / TRAJECTORY_DIRECTORY / f"step_{step:06d}.jsonl"
    if not FILE_NAME_PATTERN.fullmatch(evaluation_set):
        raise RecordError(f"evaluation set {evaluation_set!r}: use letters, digits and . _ + - in its name")
    return run_directory / TRAJECTORY_DIRECTORY / f"evaluation_{step:06d}_{evaluation_set}.jsonl"


def token_file(run_directory: Path, step: int) -> Path:
    """Return the file with the learner's numbers of the tokens of a step."""
    return run_directory / TOKEN_DIRECTORY / f"step_{step:06d}.npz"


def token_files(run_directory: Path) -> dict[int, Path]:
    """Return the files with the learner's numbers by step."""
    found = {
        path: re.fullmatch(r"step_(\d{6,})\.npz", path.name) for path in (run_directory / TOKEN_DIRECTORY).glob("*")
    }
    return {int(match[1]): path for path, match in sorted(found.items()) if match}


def step_of_file(path: Path) -> int | None:
    """Return the step in the name of a trajectory file; None for other files."""
    match = _STEP_OF_FILE.fullmatch(path.name)
    return int(match.group(1) or match.group(2)) if match else None


def training_files(run_directory: Path) -> list[Path]:
    """Return the trajectory files of training, by step."""
    return _by_step(path for path in trajectory_files(run_directory) if path.name.startswith("step_"))


def evaluation_files(run_directory: Path) -> dict[str, list[Path]]:
    """Return the trajectory files of each evaluation set, by step."""
    sets: dict[str, list[Path]] = {}
    for path in trajectory_files(run_directory):
        match = _STEP_OF_FILE.fullmatch(path.name)
        if match and match.group(3):
            sets.setdefault(match.group(3), []).append(path)
    return {name: _by_step(paths) for name, paths in sorted(sets.items())}


def trajectory_files(run_directory: Path) -> list[Path]:
    """Return all trajectory files, sorted by name."""
    paths = (run_directory / TRAJECTORY_DIRECTORY).glob("*.jsonl")
    return sorted(path for path in paths if step_of_file(path) is not None)


def _by_step(paths: Iterable[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: step_of_file(path) or 0)


_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
"""Errors of file systems without locks, as some clusters mount theirs: there, nothing protects an output."""


@contextmanager
def locked_directory(directory: Path, writer: str) -> Iterator[None]:
    """Create a directory, if it is missing, and hold its lock.

    Args:
        directory: Directory.
        writer: The writer in the error, such as "run".

    Raises:
        ConfigError: Another process holds the lock.
        RecordError: The directory cannot be created or read.
    """
    with record_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(directory, os.O_RDONLY)
    with _locked(descriptor, directory, writer):
        yield


def is_locked(directory: Path) -> bool:
    """Whether a process of this machine holds the lock of a directory, according to the kernel's list.

    Nothing tries the lock: a run that started at that moment would be refused.
    """
    status = directory.stat()
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    return any(place in line.split() for line in Path("/proc/locks").read_text().splitlines())


@contextmanager
def locked_file(path: Path, writer: str) -> Iterator[None]:
    """Hold the lock of a file, which is a hidden file next to it: a file that is replaced cannot be locked itself.

    Args:
        path: File. Its directory is created if it is missing.
        writer: The writer in the error, such as "command".

    Raises:
        ConfigError: Another process holds the lock.
        RecordError: The hidden file cannot be created.
    """
    lock = path.with_name(f".{path.name}.lock")
    with record_errors(lock):
        lock.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
    with _locked(descriptor, path, writer):
        yield


@contextmanager
def _locked(descriptor: int, path: Path, writer: str) -> Iterator[None]:
    try:
        with record_errors(path):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError(f"{path} is being written by another {writer}") from None
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
        yield
    finally:
        os.close(descriptor)
