"""Names of models and data sets on the hub: `owner/name`, with `@revision` for a branch, a tag or a commit."""

import re
from pathlib import Path

from torl.errors import DataError

DATASET_PREFIX = "hf:"
NAME = re.compile(r"([\w.-]+/[\w.-]+?)(?:@([\w./-]+))?")
COMMIT = re.compile(r"[0-9a-f]{40}")


def is_name(path: str) -> bool:
    """Whether it can be a name of the hub: a path whose first directory exists is meant as a path."""
    return NAME.fullmatch(path) is not None and not Path(path).parts[0].startswith(".") and not _owner_is_here(path)


def dataset_name(path: str) -> str:
    """What stands behind the prefix of a data set.

    Raises:
        DataError: it is no name.
    """
    name = path.removeprefix(DATASET_PREFIX)
    if not NAME.fullmatch(name):
        raise DataError(f"{path}: a data set of the hub is hf:owner/name, or hf:owner/name@revision")
    return name


def split_name(name: str) -> tuple[str, str | None]:
    """The repository and the revision."""
    found = NAME.fullmatch(name)
    assert found is not None
    return found[1], found[2]


def _owner_is_here(path: str) -> bool:
    return Path(path).parts[0] != path and Path(Path(path).parts[0]).is_dir()
