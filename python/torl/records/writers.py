"""Writing a run's records so that whatever was written survives the process.

Every row reaches the operating system before the call returns. A disk that is full, or a directory that is
gone, raises a `RecordError` that says so: a run must not continue without its records.
"""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from torl.errors import RecordError
from torl.records.events import EventWriter
from torl.records.files import atomic_write, record_errors, write_or_roll_back
from torl.records.layout import METRICS_FILE, step_of_file, trajectory_file, trajectory_files
from torl.records.reading import read_metrics
from torl.records.rows import TrajectoryRecord, encode_row, encode_trajectory


class RunWriter:
    """Writes a run's metrics (`metrics.jsonl` and TensorBoard events with the same numbers) and its trajectories.

    Call it from one thread at a time. Use as a context manager, or close it.
    """

    def __init__(self, run_directory: Path, *, resume_step: int | None = None, tensorboard: bool = True) -> None:
        """Open the files.

        Args:
            run_directory: made if it is missing.
            resume_step: records of this step and later are removed first: the run will write them again. None for
                a new run.
            tensorboard: also write `tensorboard/`.

        Raises:
            RecordError: the directory cannot be written, the old rows are damaged, or a new run finds old rows.
        """
        self._run_directory = run_directory
        self._path = run_directory / METRICS_FILE
        with record_errors(run_directory):
            run_directory.mkdir(parents=True, exist_ok=True)
            if resume_step is not None:
                truncate_records(run_directory, resume_step)
            elif self._path.exists() and self._path.stat().st_size > 0:
                raise RecordError(f"{self._path}: holds the metrics of another run")
            self._file = self._path.open("ab", buffering=0)
        self._events = EventWriter(run_directory / "tensorboard", resume_step) if tensorboard else None

    def write_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append one row. Names as in `torl.records.metric_names`; `step` and `time` are added.

        Raises:
            RecordError: the row could not be written whole, or the file no longer exists.
        """
        now = time.time()
        row = encode_row({"step": step, "time": round(now, 3), **metrics})
        self._check_place()
        with record_errors(self._path):
            write_or_roll_back(self._file.fileno(), row)
        if self._events is not None:
            self._events.write(step, metrics, now)

    def write_trajectories(
        self, step: int, records: Sequence[TrajectoryRecord], *, evaluation_set: str | None = None
    ) -> Path:
        """See the function `write_trajectories`; about 3 ms for 1,000 tokens, so a large step is worth a thread.

        Raises:
            RecordError: they could not be written, or the run's directory no longer exists.
        """
        self._check_place()
        return write_trajectories(self._run_directory, step, records, evaluation_set=evaluation_set)

    def close(self) -> None:
        """Close the files. May be called twice."""
        self._file.close()
        if self._events is not None:
            self._events.close()

    def _check_place(self) -> None:
        """An open file can be written after it was removed, and nobody would ever read it."""
        with record_errors(self._path):
            there = os.path.samestat(self._path.stat(), os.fstat(self._file.fileno()))
        if not there:
            raise RecordError(f"{self._path}: was replaced while the run was writing it")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def write_trajectories(
    run_directory: Path, step: int, records: Sequence[TrajectoryRecord], *, evaluation_set: str | None = None
) -> Path:
    """Write all trajectories of a step, or of an evaluation, as one file; it appears whole or not at all.

    Args:
        run_directory: it exists; the directory of the trajectories is made inside.
        step: of all the records.
        records: in the order of the file.
        evaluation_set: whose evaluation it is.

    Raises:
        RecordError: it could not be written.
        ValueError: a record is of another step.
    """
    path = trajectory_file(run_directory, step, evaluation_set)
    with record_errors(path):
        path.parent.mkdir(exist_ok=True)
    with atomic_write(path) as file:
        for record in records:
            if record.step != step:
                raise ValueError(f"a record of step {record.step} among those of step {step}")
            file.write(encode_row(encode_trajectory(record)))
    return path


def truncate_records(run_directory: Path, step: int) -> None:
    """Remove what a resumed run will write again: metrics and trajectories of `step` and later.

    Raises:
        RecordError: they could not be removed.
    """
    truncate_metrics(run_directory, step)
    with record_errors(run_directory):
        for path in trajectory_files(run_directory):
            file_step = step_of_file(path)
            if file_step is not None and file_step >= step:
                path.unlink()


def truncate_metrics(run_directory: Path, step: int) -> None:
    """Remove the rows of `step` and later, and an unfinished last line, in one atomic replacement.

    Raises:
        RecordError: a row is damaged, or the file could not be replaced.
    """
    path = run_directory / METRICS_FILE
    if not path.exists():
        return
    rows = read_metrics(run_directory)
    if not all(isinstance(row.get("step"), int) for row in rows):
        raise RecordError(f"{path}: damaged: a row has no step")
    kept = [row for row in rows if row["step"] < step]
    with atomic_write(path) as file:
        for row in kept:
            file.write(encode_row(row))
