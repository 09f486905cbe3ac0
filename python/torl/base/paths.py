"""Paths of the configuration, on disk or inside the package, and valid file names."""

import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from torl.base.errors import ConfigError, DataError

PACKAGE_PREFIX = "torl:"
FILE_NAME_PATTERN = re.compile(r"[\w.+-]+")
RESERVED_SET_PATTERN = re.compile(r"training|.*\.greedy")
"""Names that no evaluation set may have: those of the training rows, and of the greedy responses of another set."""


def resolve_path(path: str | Path) -> Path:
    """Return the existing file or directory that `path` names.

    `torl:demo/problems/train.jsonl` names a file inside the installed package; anything else is a path of
    the file system, relative to the working directory, with `~` for the home directory.

    Raises:
        DataError: The file does not exist, a package path leaves the package, or the package is a zip archive.
    """
    text = str(path)
    if not text.startswith(PACKAGE_PREFIX):
        located = Path(text).expanduser()
    else:
        package = resources.files("torl")
        if not isinstance(package, Path):
            raise DataError(f"{text}: files inside the package need torl to be installed unpacked, not as an archive")
        inner = Path(text.removeprefix(PACKAGE_PREFIX))
        if inner.is_absolute() or ".." in inner.parts:
            raise DataError(f"{text}: a package path must stay inside the package")
        located = package / inner
    if not located.exists():
        hint = "this installation of torl does not hold it" if text.startswith(PACKAGE_PREFIX) else "no such file"
        raise DataError(f"{text}: {hint} ({located.absolute()})")
    return located


def labelled_paths(arguments: Sequence[str]) -> dict[str, Path]:
    """Return the paths of arguments `LABEL=PATH` by label. An argument without a label has its last component.

    Raises:
        ConfigError: A label is empty or used twice.
    """
    paths: dict[str, Path] = {}
    for argument in arguments:
        label, separator, path = argument.partition("=")
        if not separator or Path(argument).exists():  # a directory may be called lr=1e-6
            label, path = Path(argument).resolve().name, argument
        if not label or label in paths:
            raise ConfigError(f"{argument}: the label {label!r} is empty or used twice: write LABEL={Path(path)}")
        paths[label] = Path(path)
    return paths
