"""Selection of a dataset's files: those of a split in the layout of the Hub, or those that patterns match."""

import re
from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from torl.base.errors import DataError

_TEXTS = (".jsonl", ".json", ".csv")
FILE_SUFFIXES = (".jsonl", ".json", ".parquet", ".csv", ".arrow")
COMPRESSIONS = (".gz", ".zst")
"""Suffixes of compressed files, after the suffix of the format."""
_DESCRIPTIONS = ("dataset_infos.json", "dataset_info.json", "dataset_dict.json", "state.json")  # of `datasets`
_SHARD = re.compile(r"-\d{5}-of-(\d{5})$")
_SHARD_OF_STEM = re.compile(r"-\d{5}-of-\d{5}.*")  # some stems end in a checksum
_NUMBER_OF_STEM = re.compile(r"[\W\d_]+$")
_SPLITS = ("train", "test", "validation", "dev")


def file_format(name: str) -> tuple[str, str]:
    """Return the suffix of the format of a file in lower case, and that of its compression: "a.JSONL.gz" has both."""
    located = PurePosixPath(name)
    compression = located.suffix.lower() if located.suffix.lower() in COMPRESSIONS else ""
    return (located.with_suffix("") if compression else located).suffix.lower(), compression


def is_readable(name: str) -> bool:
    """Whether the name of a file is that of a format that is read: of compressed files, those with text."""
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
    if not patterns:
        _require_one_configuration(path, split, wanted)
    if len({file_format(name) for name in wanted}) > 1:
        raise DataError(f"{path}: the split {split!r} has files in several formats: pass one of its files instead")
    _require_all_shards(path, split, wanted)
    return wanted


def _rank(name: str) -> int:
    """Return the rank of a format: files of one are read only if a split lacks those of lower ranks."""
    suffix, compression = file_format(name)
    return 2 if compression or suffix == ".arrow" else int(suffix == ".csv")


def _files_of_split(split: str, names: Sequence[str]) -> list[str]:
    own = [name for name in names if split.lower() in _split_names(name)]
    own = own or [name for name in names if _has_word(name, split)]
    has_splits = any(_has_word(name, each) for name in names for each in _SPLITS)
    return list(names) if not own and split == "train" and not has_splits else own


def _split_names(name: str) -> set[str]:
    """Return the names that a split with only this file can have: the stem without a shard, and without a number."""
    stem = _SHARD_OF_STEM.sub("", PurePosixPath(without_suffixes(name)).name.lower())
    return {stem, _NUMBER_OF_STEM.sub("", stem)}


def without_suffixes(name: str) -> str:
    """Return the name of a file without the suffixes of its format and its compression."""
    return name[: len(name) - len("".join(file_format(name)))]


def _has_word(text: str, word: str) -> bool:
    return re.search(rf"(?<![a-z]){re.escape(word.lower())}(?![a-z])", text.lower()) is not None


def _require_one_configuration(path: str, split: str, names: Collection[str]) -> None:
    """Check that the files of a split differ in no more than a number: configurations may contain each other.

    Raises:
        DataError: A file differs in more from another. The message has a pattern of each configuration.
    """
    patterns = sorted({_pattern(name, split) for name in names})
    if len(patterns) > 1:
        raise DataError(
            f"{path}: the files of the split {split!r} are of several configurations or splits: {', '.join(patterns)}; "
            f'choose files by patterns, such as files = "{patterns[0]}" in a configuration, or --files "{patterns[0]}"'
        )


def _pattern(name: str, split: str) -> str:
    """Return the pattern of a file and of those that differ from it in the number of the file."""
    located = PurePosixPath(name)
    if not _has_word(located.name, split):  # the split is a directory, or the whole dataset
        return str(located.parent / "*")
    stem = _SHARD_OF_STEM.sub("", without_suffixes(located.name))
    stem = stem if stem.lower() == split.lower() else _NUMBER_OF_STEM.sub("", stem)
    return str(located.parent / f"{stem}*")


def _require_all_shards(path: str, split: str, names: Collection[str]) -> None:
    """Check that a file in shards is complete.

    Raises:
        DataError: A shard is missing.
    """
    stems = {without_suffixes(name) for name in names}
    for stem in stems:
        if shard := _SHARD.search(stem):
            shards = {f"{stem[: shard.start()]}-{number:05d}-of-{shard[1]}" for number in range(int(shard[1]))}
            if missing := sorted(shards - stems):
                raise DataError(f"{path}: a shard of the split {split!r} is missing: {missing[0]}; download it again")
