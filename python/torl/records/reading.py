"""Reading a run's records back."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torl.errors import RecordError
from torl.records.layout import METRICS_FILE
from torl.records.rows import TrajectoryRecord, decode_trajectory


def read_metrics(run_directory: Path) -> list[dict[str, Any]]:
    """The rows of a run's metrics. A last line that a killed process left unfinished is not a row.

    Raises:
        RecordError: the file is missing, or a finished line of it is damaged.
    """
    return list(_read_rows(run_directory / METRICS_FILE))


def read_trajectories(path: Path) -> Iterator[TrajectoryRecord]:
    """The rows of one trajectory file.

    Raises:
        RecordError: the file is missing or a line of it is damaged; names the line.
    """
    for number, row in enumerate(_read_rows(path), start=1):
        try:
            yield decode_trajectory(row)
        except (KeyError, TypeError, ValueError) as error:
            raise RecordError(f"{path}, line {number}: not a trajectory: {type(error).__name__}: {error}") from error


def _read_rows(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    return  # its writer was killed in the middle
                try:
                    row = json.loads(line.decode("utf-8"))  # given bytes, json would guess their encoding
                except UnicodeDecodeError as error:
                    raise RecordError(f"{path}, line {number}: damaged: not UTF-8") from error
                except ValueError as error:
                    raise RecordError(f"{path}, line {number}: damaged: {error}") from error
                if not isinstance(row, dict):
                    raise RecordError(f"{path}, line {number}: damaged: not an object")
                yield row
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror}") from error
