"""Read the records of a run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torl.base.errors import RecordError
from torl.base.inputs import open_file, parse_json, read_file
from torl.run.records.files import METRICS_FILE, step_of_file, trajectory_files
from torl.run.records.metric_names import RENAMED
from torl.run.records.rows import TrajectoryRecord, decode_line, decode_trajectory


def read_metrics(run_directory: Path) -> list[dict[str, Any]]:
    """Read the metrics of a run by their present names, without an unfinished last line of a killed process.

    Raises:
        RecordError: The file is missing, or a finished line is damaged.
    """
    rows = read_rows(run_directory / METRICS_FILE)
    return [{RENAMED.get(name, name): value for name, value in row.items()} for row in rows]


class MetricsTail:
    """The rows that a running run appends to its metrics from now on."""

    def __init__(self, path: Path) -> None:
        """Start at the end of a file."""
        self._path = path
        self._offset = path.stat().st_size if path.is_file() else 0

    def read(self) -> list[dict[str, Any]]:
        """Return the rows since the last call.

        Raises:
            RecordError: The file cannot be read, or a row is damaged.
        """
        try:
            with open_file(self._path) as file:
                file.seek(self._offset)
                *lines, _ = file.read().split(b"\n")
            self._offset += sum(len(line) + 1 for line in lines)
            return [parse_json(line) for line in lines]
        except OSError as error:
            raise RecordError(f"{self._path}: cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise RecordError(f"{self._path}: damaged: {error}") from error


def read_trajectories(path: Path) -> Iterator[TrajectoryRecord]:
    """Yield the records of a trajectory file.

    Raises:
        RecordError: The file is missing, or a line is damaged.
    """
    for number, line in _lines(path):
        try:
            yield decode_line(line)
        except ValueError:  # decoded again for the message
            yield _decode(path, number, _parse(path, number, line))


def read_trajectory_rows(path: Path) -> Iterator[tuple[dict[str, Any], TrajectoryRecord]]:
    """Yield each row of a trajectory file with its record. Raises the errors of `read_trajectories`."""
    for number, row in enumerate(read_rows(path), start=1):
        yield row, _decode(path, number, row)


def find_damage(run_directory: Path, step: int, max_bytes: int = 1 << 28) -> RecordError | None:
    """Return the error of a damaged line in the trajectories before `step`, if any.

    Args:
        run_directory: Directory of the run.
        step: Step of a checkpoint.
        max_bytes: Size of the latest files that are read.
    """
    files = [(step_of_file(path) or 0, path) for path in trajectory_files(run_directory)]
    for _, path in sorted((file for file in files if file[0] < step), reverse=True):
        try:
            max_bytes -= path.stat().st_size
            if max_bytes < 0:
                break
            lines = sum(1 for _ in read_rows(path))
            is_whole = read_file(path).endswith(b"\n")  # the files are written as a whole
        except RecordError as error:
            return error
        except OSError as error:
            return RecordError(f"{path}: cannot be read: {error.strerror}")
        if not is_whole:
            return RecordError(f"{path}, line {lines + 1}: damaged: the line is cut")
    return None


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file of JSON lines, without an unfinished last line of a killed process.

    Raises:
        RecordError: The file is missing, or a finished line is damaged.
    """
    return (_parse(path, number, line) for number, line in _lines(path))


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file with their numbers, without an unfinished last line of a killed process."""
    try:
        with open_file(path) as file:
            for number, line in enumerate(file, start=1):
                if not line.endswith(b"\n"):
                    return  # the writer was killed while writing it
                yield number, line
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror}") from error


def _parse(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        row = parse_json(line)
    except ValueError as error:
        raise RecordError(f"{path}, line {number}: damaged: {error}") from error
    if not isinstance(row, dict):
        raise RecordError(f"{path}, line {number}: damaged: not an object")
    return row


def _decode(path: Path, number: int, row: dict[str, Any]) -> TrajectoryRecord:
    try:
        return decode_trajectory(row)
    except ValueError as error:
        raise RecordError(f"{path}, line {number}: not a trajectory: {error}") from error
