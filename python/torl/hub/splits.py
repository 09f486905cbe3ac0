"""Which files of a data set belong to a split, as the hub lays them out."""

import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from torl.errors import DataError

DATA_ENDINGS = (".parquet", ".jsonl", ".json")

_PART = re.compile(r"-\d{5}-of-(\d{5})(?=\.\w+$)")


def files_in(folder: Path, split: str) -> list[Path]:
    """The files of one split of a data set in a directory, as the hub lays them out.

    Raises:
        DataError: there are none, or not all.
    """
    return [folder / name for name in files_of_split(str(folder), split, names_in(folder))]


def files_of_split(path: str, split: str, names: Iterable[str]) -> list[str]:
    """Those of the files of a data set that belong to a split.

    Raises:
        DataError: there are none, they are of several formats, or one of several that belong together is missing.
    """
    files = sorted(
        name
        for name in names
        if PurePosixPath(name).suffix in DATA_ENDINGS
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


def names_in(folder: Path) -> list[str]:
    return [str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()]


def _words(name: str) -> set[str]:
    return set(re.split(r"[^a-zA-Z]+", name.lower()))
