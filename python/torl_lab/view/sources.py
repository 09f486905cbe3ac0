"""The files of trajectories that the viewer reads: of a run, of an evaluation, or a single file."""

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from torl.base.errors import ConfigError
from torl.run.records.files import CONFIG_FILE, TRAJECTORY_DIRECTORY, step_of_file, trajectory_files
from torl_sandbox.paths import cache_directory

TRAINING: Final = "training"
"""Name of the set of the trajectories that a run trains on."""
INDEX_FILE: Final = "view-2.sqlite"
"""Name of the index. It has the version of the schema, so that viewers of two versions do not replace each other's."""

_EVALUATION = re.compile(r"evaluation_\d{6,}_(.+)\.jsonl")


@dataclass(frozen=True, slots=True)
class Source:
    """A file of trajectories."""

    path: Path
    name: str  # in the index and in links: the path below the target, without the suffix
    set_name: str  # `TRAINING`, or the name of an evaluation set


@dataclass(frozen=True, slots=True)
class Target:
    """A directory or file that is viewed, with its label.

    Attributes:
        label: Label in the page and in links.
        path: Path of a run, of a directory with files of trajectories, or of such a file.
        tokenizer: Model whose tokenizer decodes the tokens. Unset is that of the run.
        origin: File of another library of which `path` is a copy in torl's format.
        trust: Whether to import, start and connect to what the run's files name.
    """

    label: str
    path: Path
    tokenizer: str | None = None
    origin: Path | None = None
    trust: bool = False

    @property
    def is_run(self) -> bool:
        """Whether it is the directory of a training run."""
        return (self.path / CONFIG_FILE).is_file()

    @property
    def directory(self) -> Path:
        """Directory of the records."""
        return self.path if self.path.is_dir() else self.path.parent

    def check(self) -> None:
        """Check that there is something to view.

        Raises:
            ConfigError: The path is neither a run, nor has it files of trajectories.
        """
        if not self.path.exists():
            raise ConfigError(f"{self.path}: no such file or directory")
        if not self.is_run and next(self.sources(), None) is None:
            raise ConfigError(
                f"{self.path}: neither the directory of a run ({CONFIG_FILE}), nor a file or directory of trajectories "
                "(.jsonl)"
            )

    def sources(self) -> Iterator[Source]:
        """Yield the files of trajectories, those of the latest steps first."""
        if self.path.is_file():
            yield Source(self.path, self.path.stem, self.path.stem)
        elif self.is_run:
            files = trajectory_files(self.path)
            for path in sorted(files, key=lambda path: (step_of_file(path) or 0, path.name), reverse=True):
                found = _EVALUATION.fullmatch(path.name)
                yield Source(path, path.stem, found[1] if found else TRAINING)
        else:
            for path in sorted(self.path.rglob("*.jsonl")):
                name = str(path.relative_to(self.path).with_suffix(""))
                yield Source(path, name, name)

    def path_of(self, name: str) -> Path:
        """Return the path of a file by its name in the index."""
        if self.path.is_file():
            return self.path
        directory = self.path / TRAJECTORY_DIRECTORY if self.is_run else self.path
        return directory / f"{name}.jsonl"

    def index_path(self, cache: Path | None) -> Path:
        """Return the path of the index: next to the records if the directory can be written, otherwise in a cache.

        Args:
            cache: Directory of all indexes. Unset prefers the directory of the records.

        Raises:
            ConfigError: The user has no cache directory.
        """
        resolved = self.path.resolve()
        if cache is None and os.access(self.directory, os.W_OK):
            return self.directory / (INDEX_FILE if self.path.is_dir() else f".{self.path.name}.{INDEX_FILE}")
        digest = hashlib.sha256(os.fsencode(resolved)).hexdigest()[:16]
        return (cache or view_cache("the index", "choose --index")) / f"{digest}.sqlite"


def view_cache(content: str, instead: str) -> Path:
    """Return the user's directory of the viewer's indexes and copies.

    Raises:
        ConfigError: The user has no cache directory. The message says for what content, and what to do instead.
    """
    try:
        return cache_directory("view")
    except RuntimeError as error:
        raise ConfigError(f"no cache directory for {content}: {error}; {instead}") from error
