"""Datasets on the Hub: the files of a split in the cache, downloaded, or read over the network."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from torl.base.errors import DataError
from torl.base.paths import resolve_path
from torl.components.hub.dataset_files import COMPRESSIONS, FILE_SUFFIXES, is_readable, select_files
from torl.components.hub.models import COMMIT, DATASET_PREFIX, dataset_name, hub_errors, is_name, snapshot, split_name

if TYPE_CHECKING:
    from huggingface_hub.hf_api import DatasetInfo

_DATA_FILES = [f"*{suffix}{compression}" for suffix in FILE_SUFFIXES for compression in ("", *COMPRESSIONS)]
_BLOCK_BYTES = 2**20  # size of a request; up to two blocks are buffered
IN_PLACE_OF_NAME = "instead of the name"


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a dataset on the Hub that is read over the network and not stored."""

    dataset: str
    """Name with commit: owner/name@commit."""
    name: str
    """Path within the dataset."""

    def open(self, mode: str) -> IO[bytes]:
        """Open the file as `pathlib.Path.open` does. `mode` must be "rb"."""
        from huggingface_hub import HfFileSystem

        opened = HfFileSystem().open(f"datasets/{self.dataset}/{self.name}", mode, block_size=_BLOCK_BYTES)
        return cast(IO[bytes], opened)

    def __str__(self) -> str:
        return f"{DATASET_PREFIX}{self.dataset}/{self.name}"


def resolve_dataset(path: str, split: str, patterns: Sequence[str] = ()) -> list[Path]:
    """Return the files of a split of a dataset on the Hub (`hf:owner/name`), in order.

    Patterns select files instead of a split (`select_files`).

    Raises:
        DataError: The dataset could not be downloaded, has no readable files of the split, or has several
            configurations.
    """
    folder = snapshot(dataset_name(path), "dataset", list(patterns) or _DATA_FILES, IN_PLACE_OF_NAME)
    return [folder / name for name in select_files(path, split, patterns, _files_below(folder))]


def stream_dataset(path: str, split: str, patterns: Sequence[str] = ()) -> Sequence[Path | RemoteFile]:
    """Return the files of a split without downloading: cached files if complete, else remote files.

    Raises:
        DataError: The same conditions as in `resolve_dataset`.
    """
    found = _remote_dataset(path)
    if found is None:
        return resolve_dataset(path, split, patterns)  # uses the cache, or raises an error with the command to download
    repository, _ = split_name(dataset_name(path))
    names = select_files(path, split, patterns, [sibling.rfilename for sibling in found.siblings or ()])
    folder = _cached_dataset(repository, found.sha)
    cached = [] if folder is None else [folder / name for name in names]
    if folder is not None and all(file.is_file() for file in cached):
        return cached
    return [RemoteFile(f"{repository}@{found.sha}", name) for name in names]


def pinned_dataset(path: str) -> str:
    """Return the name of a Hub dataset with its commit, and other paths unchanged.

    Raises:
        DataError: The same conditions as in `resolve_dataset`.
    """
    if not path.startswith(DATASET_PREFIX):
        return path
    repository, revision = split_name(dataset_name(path))
    if revision is not None and COMMIT.fullmatch(revision):
        return path
    found = _remote_dataset(path)
    if found is not None:
        return f"{DATASET_PREFIX}{repository}@{found.sha}"
    commit = snapshot(dataset_name(path), "dataset", _DATA_FILES, IN_PLACE_OF_NAME).name
    return f"{DATASET_PREFIX}{repository}@{commit}" if COMMIT.fullmatch(commit) else path


def resolve_file(path: str) -> Path:
    """Return the existing file or directory of a path that is not a dataset's name.

    Raises:
        DataError: The path does not exist. The message has a hint if it may be a Hub name without its prefix.
    """
    try:
        return resolve_path(path)
    except DataError as error:
        is_hub_name = is_name(path) and not is_readable(path)
        hint = f"; the dataset of that name on the Hub is {DATASET_PREFIX}{path}" if is_hub_name else ""
        raise DataError(f"{error}{hint}") from error


def files_in(folder: Path, split: str, patterns: Sequence[str] = ()) -> list[Path]:
    """Return the files of a split in a directory with the layout of the Hub, or the files that match patterns.

    Raises:
        DataError: The split has no files or several configurations, or a shard is missing.
    """
    return [folder / name for name in select_files(str(folder), split, patterns, _files_below(folder))]


def _remote_dataset(path: str) -> "DatasetInfo | None":
    """Request the metadata of a dataset. None without a network."""
    from httpx2 import TransportError
    from huggingface_hub import HfApi, constants

    repository, revision = split_name(dataset_name(path))
    if constants.HF_HUB_OFFLINE:
        return None
    with hub_errors(path, "dataset", IN_PLACE_OF_NAME):
        try:
            return HfApi().dataset_info(repository, revision=revision)
        except TransportError:
            return None


def _cached_dataset(repository: str, revision: str | None) -> Path | None:
    """Return the directory of a dataset in the cache, which may be incomplete, or None."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(repository, repo_type="dataset", revision=revision, local_files_only=True))
    except OSError:
        return None


def _files_below(folder: Path) -> list[str]:
    return [str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()]
