"""Models by their names on the hub."""

from pathlib import Path

from torl.hub.downloads import snapshot
from torl.hub.names import COMMIT, NAME, is_name
from torl.paths import PACKAGE_PREFIX, resolve_path

_MODEL_FILES = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]


def resolve_model(path: str) -> Path:
    """The directory of a model: one that exists, one inside the package (`torl:`), or a model of the hub.

    Raises:
        DataError: there is none, and it could not be downloaded; says what to download and where to put it.
    """
    if path.startswith(PACKAGE_PREFIX) or Path(path).expanduser().exists() or not is_name(path):
        return resolve_path(path)
    return snapshot(path, "model", _MODEL_FILES, "to --model.path")


def resolve_model_config(path: str) -> Path:
    """A directory with the `config.json` of a model: of the hub's, its weights are not downloaded.

    Raises:
        DataError: see `resolve_model`.
    """
    if path.startswith(PACKAGE_PREFIX) or Path(path).expanduser().exists() or not is_name(path):
        return resolve_path(path)
    return snapshot(path, "model", ["*.json"], "to --model.path")


def pinned_model(path: str) -> str:
    """The name of a model with the commit that it was resolved to; anything else as it is.

    Raises:
        DataError: see `resolve_model`.
    """
    name = NAME.fullmatch(path)
    if path.startswith(PACKAGE_PREFIX) or Path(path).expanduser().exists() or name is None or not is_name(path):
        return path
    commit = resolve_model(path).name
    return f"{name[1]}@{commit}" if COMMIT.fullmatch(commit) else path
