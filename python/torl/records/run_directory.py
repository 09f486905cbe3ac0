"""The run directory: opening it, and the configuration of each start."""

import itertools
import os
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from torl.config import FinetuneConfig, LearningConfig, TrainConfig
from torl.config.loading import load_config
from torl.errors import ConfigError, RecordError
from torl.inputs import open_file, stat_file
from torl.options import dotted_leaves, read_toml
from torl.records.files import CONFIG_FILE, METRICS_FILE, TRAJECTORY_DIRECTORY, atomic_write, record_errors
from torl.records.locks import locked_directory
from torl.records.receipt import RECEIPT_FILE
from torl.trust import reading_unless_open

_START_KEY = "run.resume"  # describes a start, not the run
_FIRST_STEP = "# The configuration from step {} on.\n"


class ChangedKey(NamedTuple):
    """A key of the configuration with its earlier and its new value; None if unset."""

    key: str  # dotted, as in "learner.learning_rate"
    before: Any
    now: Any

    def __str__(self) -> str:
        before, now = ("unset" if value is None else repr(value) for value in (self.before, self.now))
        return f"{self.key} changed from {before} to {now}"


@contextmanager
def open_run_directory(config: LearningConfig) -> Iterator[Path]:
    """Create the directory, or open it for a resumed run. Creates an empty `logs/`.

    The directory is locked until the end of the block, so that no second run writes it.

    Raises:
        ConfigError: The directory contains a run and `run.resume` is false, or another run writes it.
        RecordError: The directory cannot be written.
    """
    directory = config.run.directory
    with ExitStack() as stack:
        with record_errors(directory):
            stack.enter_context(locked_directory(directory, "run"))
            if (directory / CONFIG_FILE).exists() and not config.run.resume:
                raise ConfigError(
                    f"{directory} contains a run: resume it (--run.resume), or choose another directory "
                    "(--run.directory)"
                )
            (directory / "logs").mkdir(exist_ok=True)
        yield directory


def write_config(directory: Path, config: LearningConfig, first_step: int = 0) -> list[str]:
    """Write the resolved configuration, once it has been checked, and return its changes as lines.

    `config.toml` is the configuration of the latest start. Earlier, different ones are kept as `config.1.toml`,
    `config.2.toml`, ... in the order of the starts. The first line of each file is a comment with the first step that
    the configuration applies to.

    Args:
        directory: Directory of the run.
        config: Resolved configuration.
        first_step: First step that is played with the configuration.

    Raises:
        RecordError: The earlier configuration cannot be read, or the new one cannot be written.
    """
    path = directory / CONFIG_FILE
    changes = changed_keys(directory, config)
    if not changes and path.exists():
        first_step = min(first_step, _first_step(path))
    with record_errors(path):
        if changes:
            earlier = next(file for file in _earlier_files(directory) if not file.exists())
            with atomic_write(earlier) as file:
                file.write(path.read_bytes())
        with atomic_write(path) as file:
            file.write((_FIRST_STEP.format(first_step) + str(config)).encode("utf-8"))
    return [str(change) for change in changes]


def has_only_started(directory: Path) -> bool:
    """Whether a run has written its configuration, but no line of its receipt and no record."""
    records = any(os.path.lexists(directory / name) for name in (RECEIPT_FILE, TRAJECTORY_DIRECTORY))
    metrics = directory / METRICS_FILE
    return (directory / CONFIG_FILE).exists() and not records and not (metrics.exists() and stat_file(metrics).st_size)


def read_config(directory: Path) -> TrainConfig | FinetuneConfig:
    """Return the configuration of the latest start of a run.

    Raises:
        ConfigError: The configuration cannot be read.
    """
    return _load(directory / CONFIG_FILE)


def read_configs(directory: Path) -> list[tuple[int, TrainConfig | FinetuneConfig]]:
    """Return the configurations of a run in the order of its starts, each with the first step that it applies to.

    A step was played with the last configuration whose first step is not above it.

    Raises:
        ConfigError: A configuration cannot be read.
    """
    earlier = itertools.takewhile(os.path.lexists, _earlier_files(directory))
    files = [*earlier, directory / CONFIG_FILE]
    configs = [_load(file) for file in files]
    return list(zip(map(_first_step, files), configs, strict=True))


def _load(path: Path) -> TrainConfig | FinetuneConfig:
    """Load a configuration, of fine-tuning if it has its section."""
    with reading_unless_open():
        if "finetune" in read_toml(path):
            return load_config(FinetuneConfig, path)
        return load_config(TrainConfig, path)


def _first_step(path: Path) -> int:
    """Return the number in the first line of a configuration, or 0 without such a line."""
    before, after = _FIRST_STEP.split("{}")
    with suppress(OSError, ValueError), open_file(path) as file:
        return int(file.readline().decode().removeprefix(before).removesuffix(after))
    return 0


def changed_keys(directory: Path, config: LearningConfig) -> list[ChangedKey]:
    """Return the changes since the latest start of the run; empty for a new run.

    Raises:
        RecordError: The configuration of the latest start cannot be read.
    """
    path = directory / CONFIG_FILE
    if not os.path.lexists(path):
        return []
    try:
        before = dict(dotted_leaves(read_toml(path)))
    except ConfigError as error:
        raise RecordError(str(error)) from error
    now = dict(dotted_leaves(tomllib.loads(str(config))))
    keys = [key for key in {**before, **now} if key != _START_KEY]
    pairs = [ChangedKey(key, before.get(key), now.get(key)) for key in keys]
    return [pair for pair in pairs if pair.before != pair.now]


def _earlier_files(directory: Path) -> Iterator[Path]:
    number = 1
    while True:
        yield directory / f"config.{number}.toml"
        number += 1
