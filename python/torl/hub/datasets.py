"""Data sets by their names on the hub: in its cache, downloaded, or read over the network."""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from torl.hub.downloads import hub_errors, snapshot
from torl.hub.names import COMMIT, DATASET_PREFIX, dataset_name, is_name, split_name
from torl.hub.remote_file import RemoteFile
from torl.hub.splits import DATA_ENDINGS, files_of_split, names_in

if TYPE_CHECKING:
    from huggingface_hub.hf_api import DatasetInfo

_DATA_FILES = [f"*{ending}" for ending in DATA_ENDINGS]
_IN_PLACE = "in place of the name"


def resolve_dataset(path: str, split: str) -> list[Path]:
    """The files of one split of a data set of the hub (`hf:owner/name`), in their order.

    A file belongs to a split if its path has the split's name as a word: `data/train-00000-of-00002.parquet`.
    A data set whose files name no split at all is one.

    Raises:
        DataError: there is none, it could not be downloaded, or it has no files of that split that torl reads.
    """
    folder = snapshot(dataset_name(path), "dataset", _DATA_FILES, _IN_PLACE)
    return [folder / name for name in files_of_split(path, split, names_in(folder))]


def stream_dataset(path: str, split: str) -> Sequence[Path | RemoteFile]:
    """The same files, but read over the network where the cache does not hold all of the split.

    Raises:
        DataError: see `resolve_dataset`.
    """
    found = _remote_dataset(path)
    if found is None:
        return resolve_dataset(path, split)  # the cache, or an error that says what to download
    repository, _ = split_name(dataset_name(path))
    names = files_of_split(path, split, [sibling.rfilename for sibling in found.siblings or ()])
    folder = _cached_dataset(repository, found.sha)
    cached = [] if folder is None else [folder / name for name in names]
    if folder is not None and all(file.is_file() for file in cached):
        return cached
    return [RemoteFile(f"{repository}@{found.sha}", name) for name in names]


def pinned_dataset(path: str) -> str:
    """The name of a data set of the hub with the commit that it is at; anything else as it is.

    Raises:
        DataError: see `resolve_dataset`.
    """
    if not path.startswith(DATASET_PREFIX):
        return path
    repository, revision = split_name(dataset_name(path))
    if revision is not None and COMMIT.fullmatch(revision):
        return path
    found = _remote_dataset(path)
    if found is not None:
        return f"{DATASET_PREFIX}{repository}@{found.sha}"
    commit = snapshot(dataset_name(path), "dataset", _DATA_FILES, _IN_PLACE).name  # the cache, or an error
    return f"{DATASET_PREFIX}{repository}@{commit}" if COMMIT.fullmatch(commit) else path


def name_hint(path: str) -> str:
    """What a path that does not exist may have been meant as: a name of the hub without its prefix."""
    is_meant = is_name(path) and PurePosixPath(path).suffix not in DATA_ENDINGS
    return f"; the data set of that name on the hub is {DATASET_PREFIX}{path}" if is_meant else ""


def _remote_dataset(path: str) -> "DatasetInfo | None":
    """What the hub says of a data set; None without a network."""
    from httpx2 import TransportError
    from huggingface_hub import HfApi, constants

    repository, revision = split_name(dataset_name(path))
    if constants.HF_HUB_OFFLINE:
        return None
    with hub_errors(path, "dataset", _IN_PLACE):
        try:
            return HfApi().dataset_info(repository, revision=revision)
        except TransportError:
            return None


def _cached_dataset(repository: str, revision: str | None) -> Path | None:
    """The directory of a data set in the cache, which may hold a part of its files."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(repository, repo_type="dataset", revision=revision, local_files_only=True))
    except OSError:
        return None
