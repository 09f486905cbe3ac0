"""Datasets on the Hub or in its layout: the files of a split, or of patterns; downloaded, or read over the network."""

import re
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, cast

from torl.base.errors import DataError
from torl.base.paths import resolve_path
from torl.components.hub.models import COMMIT, DATASET_PREFIX, dataset_name, hub_errors, is_name, snapshot, split_name

if TYPE_CHECKING:
    from huggingface_hub.hf_api import DatasetInfo

_TEXTS = (".jsonl", ".json", ".csv")
FILE_SUFFIXES = (".jsonl", ".json", ".parquet", ".csv", ".arrow")
COMPRESSIONS = (".gz", ".zst")
"""Suffixes of compressed files, after the suffix of the format."""
_DESCRIPTIONS = ("dataset_infos.json", "dataset_info.json", "dataset_dict.json", "state.json")  # of `datasets`
_SHARD = re.compile(r"-\d{5}-of-(\d{5})$")
_SHARD_OF_STEM = re.compile(r"-\d{5}-of-\d{5}.*")  # some stems end in a checksum
_NUMBER_OF_STEM = re.compile(r"[\W\d_]+$")
_SPLITS = ("train", "test", "validation", "dev")
_DATA_FILES = [f"*{suffix}{compression}" for suffix in FILE_SUFFIXES for compression in ("", *COMPRESSIONS)]
_BLOCK_BYTES = 2**20  # size of a request; up to two blocks are buffered
IN_PLACE_OF_NAME = "instead of the name"


def file_format(name: str) -> tuple[str, str]:
    """Split a file name into its suffixes of format and compression, in lower case: "a.JSONL.gz" has both."""
    located = PurePosixPath(name)
    compression = located.suffix.lower() if located.suffix.lower() in COMPRESSIONS else ""
    return (located.with_suffix("") if compression else located).suffix.lower(), compression


def is_readable(name: str) -> bool:
    """Whether files with this name are read; compressed files must be text."""
    suffix, compression = file_format(name)
    return suffix in (_TEXTS if compression else FILE_SUFFIXES)


def select_files(path: str, split: str, patterns: Sequence[str], names: Iterable[str]) -> list[str]:
    """Select the files of a split or, if there are patterns, the files that match one, sorted.

    A split has the files of its name, such as `data/train-00000-of-00002.parquet`, or else the files whose path
    contains its name as a word. If no path contains the name of a split, all files belong to "train".

    Args:
        path: Path or name of the dataset, for error messages.
        split: Name of the split.
        patterns: Patterns of paths within the dataset, of which `*` also matches slashes.
        names: Paths of all files within the dataset.

    Raises:
        DataError: No file is selected, the files belong to several configurations or have several formats, or a shard
            is missing.
    """
    files = sorted(
        name
        for name in names
        if is_readable(name)
        and not PurePosixPath(name).name.startswith(".")
        and not fnmatchcase(PurePosixPath(name).name, "cache-*.arrow")  # of `datasets`
        and PurePosixPath(name).name not in _DESCRIPTIONS
    )
    if patterns:
        wanted = [name for name in files if any(fnmatchcase(name, pattern) for pattern in patterns)]
    else:
        wanted = _files_of_split(split, files)
    wanted = [name for name in wanted if _rank(name) == min(map(_rank, wanted))]
    if not wanted:
        part = f"the names {', '.join(patterns)}" if patterns else f"the split {split!r}"
        raise DataError(f"{path}: has no readable files of {part} (files: {', '.join(files) or 'none'})")
    configurations = [] if patterns else sorted({_pattern(name, split) for name in wanted})
    if len(configurations) > 1:  # which may contain each other
        files_of_one = configurations[0]
        raise DataError(
            f"{path}: the files of the split {split!r} are of several configurations or splits: "
            f'{", ".join(configurations)}; choose files by patterns, such as files = "{files_of_one}" in a '
            f'configuration, or --files "{files_of_one}"'
        )
    if len({file_format(name) for name in wanted}) > 1:
        raise DataError(f"{path}: the split {split!r} has files in several formats: pass one of its files instead")
    _require_all_shards(path, split, wanted)
    return wanted


def _rank(name: str) -> int:
    """Return the rank of a format: files of one are read only if a split lacks those of lower ranks."""
    suffix, compression = file_format(name)
    return 2 if compression or suffix == ".arrow" else int(suffix == ".csv")


def _files_of_split(split: str, names: Sequence[str]) -> list[str]:
    stems = {name: _SHARD_OF_STEM.sub("", PurePosixPath(without_suffixes(name)).name.lower()) for name in names}
    own = [name for name, stem in stems.items() if split.lower() in (stem, _NUMBER_OF_STEM.sub("", stem))]
    own = own or [name for name in names if _has_word(name, split)]
    has_splits = any(_has_word(name, each) for name in names for each in _SPLITS)
    return list(names) if not own and split == "train" and not has_splits else own


def without_suffixes(name: str) -> str:
    """Return the name of a file without the suffixes of its format and its compression."""
    return name[: len(name) - len("".join(file_format(name)))]


def _has_word(text: str, word: str) -> bool:
    return re.search(rf"(?<![a-z]){re.escape(word.lower())}(?![a-z])", text.lower()) is not None


def _pattern(name: str, split: str) -> str:
    """Return a glob that matches a file and its siblings with other numbers."""
    located = PurePosixPath(name)
    if not _has_word(located.name, split):  # the split is a directory, or the whole dataset
        return str(located.parent / "*")
    stem = _SHARD_OF_STEM.sub("", without_suffixes(located.name))
    stem = stem if stem.lower() == split.lower() else _NUMBER_OF_STEM.sub("", stem)
    return str(located.parent / f"{stem}*")


def _require_all_shards(path: str, split: str, names: Collection[str]) -> None:
    """Raise `DataError` if a shard of a file is missing."""
    stems = {without_suffixes(name) for name in names}
    for stem in stems:
        if shard := _SHARD.search(stem):
            shards = {f"{stem[: shard.start()]}-{number:05d}-of-{shard[1]}" for number in range(int(shard[1]))}
            if missing := sorted(shards - stems):
                raise DataError(f"{path}: a shard of the split {split!r} is missing: {missing[0]}; download it again")


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

    Raises:
        DataError: The dataset could not be downloaded. Also raises the errors of `select_files`.
    """
    folder = snapshot(dataset_name(path), "dataset", list(patterns) or _DATA_FILES, IN_PLACE_OF_NAME)
    return [folder / name for name in select_files(path, split, patterns, _files_below(folder))]


def stream_dataset(path: str, split: str, patterns: Sequence[str] = ()) -> Sequence[Path | RemoteFile]:
    """Return the files of a split without downloading: cached files if complete, else remote files.

    Raises:
        DataError: The same conditions as in `resolve_dataset`.
    """
    from huggingface_hub import snapshot_download

    found = _remote_dataset(path)
    if found is None:
        return resolve_dataset(path, split, patterns)  # uses the cache, or raises an error with the command to download
    repository, _ = split_name(dataset_name(path))
    names = select_files(path, split, patterns, [sibling.rfilename for sibling in found.siblings or ()])
    with suppress(OSError):  # the cache has nothing of the dataset
        folder = snapshot_download(repository, repo_type="dataset", revision=found.sha, local_files_only=True)
        cached = [Path(folder, name) for name in names]
        if all(file.is_file() for file in cached):
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
        DataError: The path does not exist. It may be a Hub name without its prefix.
    """
    try:
        return resolve_path(path)
    except DataError as error:
        is_hub_name = is_name(path) and not is_readable(path)
        hint = f"; the dataset of that name on the Hub is {DATASET_PREFIX}{path}" if is_hub_name else ""
        raise DataError(f"{error}{hint}") from error


def files_in(folder: Path, split: str, patterns: Sequence[str] = ()) -> list[Path]:
    """Return the files of a split, or of patterns, in a directory; raises the errors of `select_files`."""
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


def _files_below(folder: Path) -> list[str]:
    return [str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()]
