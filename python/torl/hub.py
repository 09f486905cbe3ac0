"""Models and data sets by their names on the Hugging Face Hub: in its cache, or downloaded where there is a network.

A name is `owner/name`, with `@revision` for a branch, a tag or a commit. Where the cache lies and whether the network
may be asked is said by the hub's own variables (HF_HOME, HF_HUB_OFFLINE).
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, cast

from torl.errors import DataError
from torl.paths import PACKAGE_PREFIX, resolve_path

if TYPE_CHECKING:
    from huggingface_hub.hf_api import DatasetInfo

DATASET_PREFIX = "hf:"

_NAME = re.compile(r"([\w.-]+/[\w.-]+?)(?:@([\w./-]+))?")
_BLOCK_BYTES = 2**20  # asked for at once; up to twice as many are held
_IN_PLACE = "in place of the name"
_PART = re.compile(r"-\d{5}-of-(\d{5})(?=\.\w+$)")
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
    return _snapshot(path, "model", _MODEL_FILES, "to --model.path")


def resolve_model_config(path: str) -> Path:
    """A directory with the `config.json` of a model: of the hub's, its weights are not downloaded.

    Raises:
        DataError: see `resolve_model`.
    """
    if path.startswith(PACKAGE_PREFIX) or Path(path).expanduser().exists() or not _is_name(path):
        return resolve_path(path)
    return _snapshot(path, "model", ["*.json"], "to --model.path")


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
    folder = _snapshot(_dataset_name(path), "dataset", _DATA_FILES, _IN_PLACE)
    return [folder / name for name in _files_of_split(path, split, _names_in(folder))]


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a data set on the hub, read over the network as it is needed, and not stored."""

    data_set: str  # "owner/name@commit"
    name: str  # within it

    @property
    def suffix(self) -> str:
        """As of a `Path`."""
        return PurePosixPath(self.name).suffix

    def open(self, mode: str) -> IO[bytes]:
        """As of a `Path`; only "rb" is known."""
        from huggingface_hub import HfFileSystem

        opened = HfFileSystem().open(f"datasets/{self.data_set}/{self.name}", mode, block_size=_BLOCK_BYTES)
        return cast(IO[bytes], opened)

    def read_bytes(self) -> bytes:
        """As of a `Path`."""
        with self.open("rb") as file:
            return file.read()

    def __str__(self) -> str:
        return f"{DATASET_PREFIX}{self.data_set}/{self.name}"


def stream_dataset(path: str, split: str) -> Sequence[Path | RemoteFile]:
    """The same files, but read over the network where the cache does not hold all of the split.

    Raises:
        DataError: see `resolve_dataset`.
    """
    found = _remote_dataset(path)
    if found is None:
        return resolve_dataset(path, split)  # the cache, or an error that says what to download
    repository, _ = _split_name(_dataset_name(path))
    names = _files_of_split(path, split, [sibling.rfilename for sibling in found.siblings or ()])
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
    repository, revision = _split_name(_dataset_name(path))
    if revision is not None and _COMMIT.fullmatch(revision):
        return path
    found = _remote_dataset(path)
    if found is not None:
        return f"{DATASET_PREFIX}{repository}@{found.sha}"
    commit = _snapshot(_dataset_name(path), "dataset", _DATA_FILES, _IN_PLACE).name  # the cache, or an error
    return f"{DATASET_PREFIX}{repository}@{commit}" if _COMMIT.fullmatch(commit) else path


def _remote_dataset(path: str) -> "DatasetInfo | None":
    """What the hub says of a data set; None without a network."""
    from httpx2 import TransportError
    from huggingface_hub import HfApi, constants

    repository, revision = _split_name(_dataset_name(path))
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


@contextmanager
def hub_errors(name: str, kind: str, option: str) -> Iterator[None]:
    """What the hub and the way to it raise becomes a `DataError` that says what to download and where to put it."""
    from httpx2 import HTTPError
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        yield
    except (LocalEntryNotFoundError, HTTPError, OSError, ValueError) as error:
        repository, revision = _split_name(name.removeprefix(DATASET_PREFIX))
        flags = ("" if kind == "model" else " --repo-type dataset") + (f" --revision {revision}" if revision else "")
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise DataError(
            f"{name}: is no directory here, and the {kind} of that name cannot be had from the hub: {reason}. "
            f"Where there is a network, run `hf download {repository}{flags} --local-dir {Path(repository).name}`, "
            f"bring that directory here, and give its path {option}"
        ) from error


def files_in(folder: Path, split: str) -> list[Path]:
    """The files of one split of a data set in a directory, as the hub lays them out.

    Raises:
        DataError: there are none, or not all.
    """
    return [folder / name for name in _files_of_split(str(folder), split, _names_in(folder))]


def name_hint(path: str) -> str:
    """What a path that does not exist may have been meant as: a name of the hub without its prefix."""
    is_name = _is_name(path) and PurePosixPath(path).suffix not in _endings()
    return f"; the data set of that name on the hub is {DATASET_PREFIX}{path}" if is_name else ""


def _dataset_name(path: str) -> str:
    name = path.removeprefix(DATASET_PREFIX)
    if not _NAME.fullmatch(name):
        raise DataError(f"{path}: a data set of the hub is hf:owner/name, or hf:owner/name@revision")
    return name


def _split_name(name: str) -> tuple[str, str | None]:
    """The repository and the revision."""
    found = _NAME.fullmatch(name)
    assert found is not None
    return found[1], found[2]


def _endings() -> set[str]:
    return {pattern.removeprefix("*") for pattern in _DATA_FILES}


def _names_in(folder: Path) -> list[str]:
    return [str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()]


def _files_of_split(path: str, split: str, names: Iterable[str]) -> list[str]:
    """Those of the files of a data set that belong to a split.

    Raises:
        DataError: there are none, they are of several formats, or one of several that belong together is missing.
    """
    files = sorted(
        name
        for name in names
        if PurePosixPath(name).suffix in _endings()
        and not PurePosixPath(name).name.startswith(".")
        and PurePosixPath(name).name not in ("dataset_infos.json", "dataset_info.json")
    )
    splits = {name: _words(name) for name in files}
    known = {"train", "test", "validation", "dev"}
    wanted = [name for name in files if split in splits[name]]
    if not wanted and split == "train" and not any(known & words for words in splits.values()):
        wanted = files
    if not wanted:
        raise DataError(
            f"{path}: has no files of the split {split!r} that torl reads (its files: {', '.join(files) or 'none'})"
        )
    if len({PurePosixPath(name).suffix for name in wanted}) > 1:
        raise DataError(f"{path}: the split {split!r} is there in several formats: name one of its files instead")
    for name in wanted:
        if part := _PART.search(name):
            parts = {f"{name[: part.start()]}-{number:05d}-of-{part[1]}" for number in range(int(part[1]))}
            if missing := sorted(parts - {other.rpartition(".")[0] for other in wanted}):
                raise DataError(f"{path}: a part of the split {split!r} is missing: {missing[0]}; download it again")
    return wanted


def _is_name(path: str) -> bool:
    """Whether it can be a name of the hub: a path whose first directory exists is meant as a path."""
    return _NAME.fullmatch(path) is not None and not Path(path).parts[0].startswith(".") and not _owner_is_here(path)


def _owner_is_here(path: str) -> bool:
    return Path(path).parts[0] != path and Path(Path(path).parts[0]).is_dir()


def _words(name: str) -> set[str]:
    return set(re.split(r"[^a-zA-Z]+", name.lower()))


def _snapshot(name: str, kind: str, patterns: list[str], option: str) -> Path:
    """The directory of a model or data set in the cache, after what is missing has been downloaded."""
    from huggingface_hub import snapshot_download

    repository, revision = _split_name(name)
    with hub_errors(name, kind, option):
        return Path(snapshot_download(repository, repo_type=kind, revision=revision, allow_patterns=patterns))
