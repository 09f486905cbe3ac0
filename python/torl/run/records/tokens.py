"""The learner's numbers of the tokens of a step: one file of NumPy arrays, in the learner's own precision (float32).

In addition to the arrays of `torl.base.types.UpdateNumbers`, each the concatenation over all trajectories, it has one
value for each trajectory: "groups", "samples", "branches" (place in `episode_trajectories`), "updates", and "lengths"
(number of tokens with a loss). An array that some trajectories lack is NaN there.
"""

import os
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from torl.base.errors import RecordError
from torl.base.inputs import open_file, require_archive_proportion
from torl.base.types import UpdateNumbers
from torl.run.records.files import atomic_write, record_errors, token_file
from torl.run.records.rows import TrajectoryRecord

_DAMAGES = (AttributeError, EOFError, KeyError, MemoryError, TypeError, ValueError, zipfile.BadZipFile, zlib.error)


class TokenKey(NamedTuple):
    """The trajectory that numbers belong to.

    Attributes:
        group: Id of its group.
        sample: Index of its sample in the group.
        branch: Place in the sample's `episode_trajectories`.
    """

    group: str
    sample: int
    branch: int


def keyed(records: Iterable[TrajectoryRecord]) -> Iterator[tuple[TokenKey, TrajectoryRecord]]:
    """Yield all trajectories of the records with their keys."""
    for record in records:
        for branch, each in enumerate(record.episode_trajectories):
            yield TokenKey(record.trajectory.group_id, record.trajectory.sample_index, branch), each


def write_token_numbers(run_directory: Path, step: int, numbers: Mapping[TokenKey, UpdateNumbers]) -> Path:
    """Write the numbers of a step atomically, and return the file.

    Raises:
        RecordError: The file could not be written.
    """
    path = token_file(run_directory, step)
    with record_errors(path):
        path.parent.mkdir(exist_ok=True)
    lengths = [len(each.arrays["advantages"]) for each in numbers.values()]
    arrays: dict[str, Any] = {
        "groups": np.array([key.group for key in numbers], np.str_),
        "samples": np.array([key.sample for key in numbers], np.int32),
        "branches": np.array([key.branch for key in numbers], np.int32),
        "updates": np.array([each.update for each in numbers.values()], np.int32),
        "lengths": np.array(lengths, np.int64),
    }
    for name in sorted({name for each in numbers.values() for name in each.arrays}):
        pairs = zip(numbers.values(), lengths, strict=True)
        parts = [each.arrays.get(name, np.full(length, np.nan)) for each, length in pairs]
        arrays[name] = np.concatenate(parts).astype(np.float32)
    with atomic_write(path) as file:
        np.savez_compressed(file, **arrays)
    return path


def read_token_numbers(run_directory: Path, step: int) -> dict[TokenKey, UpdateNumbers]:
    """Read the numbers of a step; empty if the run did not record any.

    Raises:
        RecordError: The file is damaged or cannot be read.
    """
    path = token_file(run_directory, step)
    if not os.path.lexists(path):
        return {}
    try:
        with open_file(path) as file:
            require_archive_proportion(file)
            with np.load(file, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
        if any(array.ndim != 1 or not array.itemsize for array in arrays.values()):
            raise ValueError("an array is not a list of numbers or texts")
        names = ("groups", "samples", "branches", "updates", "lengths")
        groups, samples, branches, updates, lengths = (arrays.pop(name).tolist() for name in names)
        if len(lengths) != len(groups):
            raise ValueError("the trajectories and their lengths differ in number")
        cuts = np.cumsum(lengths)
        if any(array.shape != (cuts[-1] if lengths else 0,) for array in arrays.values()):
            raise ValueError("an array does not have one number for each token")
        parts = {name: np.split(array, cuts[:-1]) for name, array in arrays.items()} if lengths else {}
        keys = map(TokenKey, groups, samples, branches)
        return {
            key: UpdateNumbers(
                update, {name: part[index] for name, part in parts.items() if not np.isnan(part[index]).all()}
            )
            for index, (key, update) in enumerate(zip(keys, updates, strict=True))
        }
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror or error}") from error
    except _DAMAGES as error:
        raise RecordError(f"{path}: damaged: {error}") from error
