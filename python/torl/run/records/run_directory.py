"""The run directory: opening it, and the configuration of each start."""

import itertools
import os
import re
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from torl.base.errors import ConfigError, RecordError
from torl.base.inputs import open_file, stat_file
from torl.base.options import dotted_leaves, read_toml
from torl.base.removed import FIRST_STEP_LINE, translated
from torl.base.trust import reading_unless_open
from torl.run.config import FinetuneConfig, LearningConfig, TrainConfig
from torl.run.config.loading import load_config
from torl.run.records.files import CONFIG_FILE, METRICS_FILE, TRAJECTORY_DIRECTORY, locked_directory, record_errors
from torl.run.records.receipt import RECEIPT_FILE

_START_KEY = "run.resume"  # describes a start, not the run


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


def config_files(directory: Path, config: LearningConfig, first_step: int = 0) -> dict[Path, bytes]:
    """Return the files of a start's configuration, in the order in which they are written.

    `config.toml` is the configuration of the latest start. Earlier, different ones are kept as `config.1.toml`,
    `config.2.toml`, ... in the order of the starts. The first line of each file is a comment with the first step that
    the configuration applies to.

    Args:
        directory: Directory of the run.
        config: Configuration, once it has been checked.
        first_step: First step that is played with the configuration.

    Raises:
        RecordError: The earlier configuration cannot be read.
    """
    path = directory / CONFIG_FILE
    files: dict[Path, bytes] = {}
    if changed_keys(directory, config):
        earlier = _earlier_files(directory)
        with record_errors(path):
            data = path.read_bytes()
            if not earlier or earlier[-1].read_bytes() != data:  # the copy of a start that was killed after it
                files[earlier_file(directory, len(earlier) + 1)] = data
    elif path.exists():
        first_step = min(first_step, _first_step(path))
    return files | {path: (FIRST_STEP_LINE.format(first_step) + str(config)).encode("utf-8")}


def has_only_started(directory: Path) -> bool:
    """Whether a run has no record, and only its configuration or only the first line of its receipt."""
    metrics = directory / METRICS_FILE
    records = os.path.lexists(directory / TRAJECTORY_DIRECTORY) or (metrics.exists() and stat_file(metrics).st_size)
    has_config, has_receipt = (os.path.lexists(directory / name) for name in (CONFIG_FILE, RECEIPT_FILE))
    return has_config != has_receipt and not records


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
    files = [*_earlier_files(directory), directory / CONFIG_FILE]
    configs = [_load(file) for file in files]
    return list(zip(map(_first_step, files), configs, strict=True))


def _load(path: Path) -> TrainConfig | FinetuneConfig:
    """Load a configuration, of fine-tuning if it has its section."""
    with reading_unless_open():
        if "finetune" in read_toml(path):
            return load_config(FinetuneConfig, path)
        return load_config(TrainConfig, path)


def read_first_steps(directory: Path) -> list[tuple[Path, int | None]]:
    """Return the files of the configurations, each with the number in its first line; None if it has no such line."""
    found: list[tuple[Path, int | None]] = []
    for path in (*_earlier_files(directory), directory / CONFIG_FILE):
        with suppress(OSError), open_file(path) as file:
            match = re.fullmatch(FIRST_STEP_LINE.format("(0|[1-9][0-9]*)"), file.readline().decode(errors="replace"))
            found.append((path, int(match[1]) if match else None))
    return found


def _first_step(path: Path) -> int:
    """Return the first step that a configuration applies to, or 0 without such a line."""
    return dict(read_first_steps(path.parent)).get(path) or 0


def changed_keys(directory: Path, config: LearningConfig) -> list[ChangedKey]:
    """Return the changes since the latest start of the run; empty for a new run.

    Raises:
        RecordError: The configuration of the latest start cannot be read.
    """
    path = directory / CONFIG_FILE
    if not os.path.lexists(path):
        return []
    try:
        before = dict(dotted_leaves(translated(read_toml(path))))
    except ConfigError as error:
        raise RecordError(str(error)) from error
    now = dict(dotted_leaves(tomllib.loads(str(config))))
    keys = [key for key in {**before, **now} if key != _START_KEY]
    pairs = [ChangedKey(key, before.get(key), now.get(key)) for key in keys]
    return [pair for pair in pairs if pair.before != pair.now]


def setting_of(config: LearningConfig, name: str) -> Any:
    """Return the value of a setting as in `config.toml`, by its dotted name; None if it is unset."""
    found: Any = tomllib.loads(str(config))
    for key in name.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    return found


def earlier_file(directory: Path, number: int) -> Path:
    """Return the file of an earlier configuration by its place, from 1."""
    return directory / f"config.{number}.toml"


def _earlier_files(directory: Path) -> list[Path]:
    """Return the files of earlier configurations, in the order of the starts."""
    files = (earlier_file(directory, number) for number in itertools.count(1))
    return list(itertools.takewhile(os.path.lexists, files))
