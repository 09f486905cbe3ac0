"""Models and data sets by their names on the Hugging Face Hub: in its cache, or downloaded where there is a network.

A name is `owner/name`, with `@revision` for a branch, a tag or a commit. Where the cache lies and whether the network
may be asked is said by the hub's own variables (HF_HOME, HF_HUB_OFFLINE).
"""

import re
from pathlib import Path

from torl.errors import DataError
from torl.paths import PACKAGE_PREFIX, resolve_path

DATASET_PREFIX = "hf:"

_NAME = re.compile(r"([\w.-]+/[\w.-]+?)(?:@([\w./-]+))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_MODEL_FILES = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]
_DATA_FILES = ["*.parquet", "*.jsonl", "*.json"]


def resolve_model(path: str) -> Path:
    """The directory of a model: one that exists, one inside the package (`torl:`), or a model of the hub.

    Raises:
        DataError: there is none, and it could not be downloaded; says what to download and where to put it.
    """
    if path.startswith(PACKAGE_PREFIX) or Path(path).expanduser().exists() or not _is_name(path):
        return resolve_path(path)
    return _snapshot(path, "model", _MODEL_FILES, "--model.path")


def pinned_model(path: str) -> str:
    """The name of a model with the commit that it was resolved to; anything else as it is.

    Raises:
        DataError: see `resolve_model`.
    """
    name = _NAME.fullmatch(path)
    if path.startswith(PACKAGE_PREFIX) or Path(path).expanduser().exists() or name is None or not _is_name(path):
        return path
    commit = resolve_model(path).name
    return f"{name[1]}@{commit}" if _COMMIT.fullmatch(commit) else path


def resolve_dataset(path: str, split: str) -> list[Path]:
    """The files of one split of a data set of the hub (`hf:owner/name`), in their order.

    A file belongs to a split if its path has the split's name as a word: `data/train-00000-of-00002.parquet`.
    A data set whose files name no split at all is one.

    Raises:
        DataError: there is none, it could not be downloaded, or it has no files of that split that torl reads.
    """
    name = path.removeprefix(DATASET_PREFIX)
    if not _NAME.fullmatch(name):
        raise DataError(f"{path}: a data set of the hub is hf:owner/name, or hf:owner/name@revision")
    folder = _snapshot(name, "dataset", _DATA_FILES, "the file")
    endings = {pattern.removeprefix("*") for pattern in _DATA_FILES}
    files = sorted(file for file in folder.rglob("*") if file.suffix in endings and not file.name.startswith("."))
    files = [file for file in files if file.name not in ("dataset_infos.json", "dataset_info.json")]
    splits = {file: _words(file.relative_to(folder)) for file in files}
    known = {"train", "test", "validation", "dev"}
    wanted = [file for file in files if split in splits[file]]
    if not wanted and split == "train" and not any(known & words for words in splits.values()):
        wanted = files
    if not wanted:
        names = ", ".join(str(file.relative_to(folder)) for file in files) or "none"
        raise DataError(f"{path}: has no files of the split {split!r} that torl reads (its files: {names})")
    if len({file.suffix for file in wanted}) > 1:
        raise DataError(f"{path}: the split {split!r} is there in several formats: name one of its files instead")
    return wanted


def _is_name(path: str) -> bool:
    """Whether it can be a name of the hub: a path whose first directory exists is meant as a path."""
    return _NAME.fullmatch(path) is not None and not Path(path).parts[0].startswith(".") and not _owner_is_here(path)


def _owner_is_here(path: str) -> bool:
    return Path(path).parts[0] != path and Path(Path(path).parts[0]).is_dir()


def _words(path: Path) -> set[str]:
    return set(re.split(r"[^a-zA-Z]+", str(path).lower()))


def _snapshot(name: str, kind: str, patterns: list[str], option: str) -> Path:
    """The directory of a model or data set in the cache, after what is missing has been downloaded."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    found = _NAME.fullmatch(name)
    assert found is not None
    repository, revision = found[1], found[2]
    try:
        return Path(snapshot_download(repository, repo_type=kind, revision=revision, allow_patterns=patterns))
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError, ValueError) as error:
        flags = ("" if kind == "model" else " --repo-type dataset") + (f" --revision {revision}" if revision else "")
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise DataError(
            f"{name}: is no directory here, and the {kind} of that name cannot be had from the hub: {reason} "
            f"Where there is a network, run `hf download {repository}{flags} --local-dir {Path(repository).name}`, "
            f"bring that directory here, and give its path to {option}"
        ) from error
