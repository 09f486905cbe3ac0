"""The directory that holds everything a run writes: opening it, and the configuration of each start."""

import fcntl
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torl.config import TrainConfig
from torl.config.loading import dump_config
from torl.errors import ConfigError, RecordError
from torl.records.files import atomic_write, record_errors
from torl.records.layout import CONFIG_FILE

# Says how a run was started, and nothing about the run.
_OF_A_START = "run.resume"


class ChangedKey(NamedTuple):
    """A key of the configuration with its value before and now; None where it is unset."""

    key: str  # dotted: "learner.learning_rate"
    before: Any
    now: Any

    def __str__(self) -> str:
        before, now = ("unset" if value is None else repr(value) for value in (self.before, self.now))
        return f"{self.key} is {now} now; it was {before}"


def open_run_directory(config: TrainConfig) -> Path:
    """Make the directory, or find it again for a resumed run; writes nothing into it but an empty `logs/`.

    The directory stays locked until the process ends, so that no second process writes the same run.

    Raises:
        ConfigError: it holds a run that is not to be resumed, or is another process's.
        RecordError: it cannot be written.
    """
    directory = config.run.directory
    with record_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        _lock(directory)
        if (directory / CONFIG_FILE).exists() and not config.run.resume:
            raise ConfigError(
                f"{directory} holds a run: resume it (--run.resume), or choose another place (--run.directory)"
            )
        (directory / "logs").mkdir(exist_ok=True)
    return directory


def write_config(directory: Path, config: TrainConfig) -> list[str]:
    """Write the resolved configuration, once all that may refuse it has been checked; says what it changes, by line.

    `config.toml` is that of the latest start. One that says something else is kept beside it, as `config.1.toml`,
    `config.2.toml`, ... in the order of the starts.

    Raises:
        RecordError: the earlier configuration cannot be read, or the new one cannot be written.
    """
    path = directory / CONFIG_FILE
    changes = changed_keys(directory, config)
    with record_errors(path):
        if changes:
            earlier = next(place for place in _earlier_places(directory) if not place.exists())
            with atomic_write(earlier) as file:
                file.write(path.read_bytes())
        with atomic_write(path) as file:
            file.write(dump_config(config).encode("utf-8"))
    return [str(change) for change in changes]


def changed_keys(directory: Path, config: TrainConfig) -> list[ChangedKey]:
    """What differs from the configuration that the run had at its latest start; nothing for a new run.

    Raises:
        RecordError: that configuration cannot be read.
    """
    path = directory / CONFIG_FILE
    if not path.exists():
        return []
    try:
        before = dict(_leaves(tomllib.loads(path.read_text(encoding="utf-8"))))
    except (OSError, ValueError) as error:
        raise RecordError(f"{path}: cannot be read: {error}") from error
    now = dict(_leaves(tomllib.loads(dump_config(config))))
    keys = [key for key in {**before, **now} if key != _OF_A_START]
    pairs = [ChangedKey(key, before.get(key), now.get(key)) for key in keys]
    return [pair for pair in pairs if pair.before != pair.now]


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _earlier_places(directory: Path) -> Iterator[Path]:
    number = 1
    while True:
        yield directory / f"config.{number}.toml"
        number += 1


def _lock(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)  # open, and the lock with it, until the process ends
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ConfigError(f"{directory} is being written by another process") from None
