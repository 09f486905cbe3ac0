"""Writing a run's records so that whatever was written survives the process.

Every row reaches the operating system before the call returns. A disk that is full, or a directory that is
gone, raises a `RecordError` that says so: a run must not go on without its records.
"""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from torl.errors import RecordError
from torl.metrics.records import (
    METRICS_FILE,
    TRAJECTORY_DIRECTORY,
    TrajectoryRecord,
    encode_row,
    encode_trajectory,
    read_metrics,
    step_of_file,
    trajectory_file,
)
from torl.types import Float32Array, Grade, Trajectory


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
        with _explained(run_directory):
            run_directory.mkdir(parents=True, exist_ok=True)
            if resume_step is not None:
                truncate_records(run_directory, resume_step)
            elif self._path.exists() and self._path.stat().st_size > 0:
                raise RecordError(f"{self._path}: holds the metrics of another run")
            self._file = self._path.open("ab", buffering=0)
        self._events = EventWriter(run_directory / "tensorboard", resume_step) if tensorboard else None

    def write_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append one row. Names as in `torl.metrics.names`; `step` and `time` are added.

        Raises:
            RecordError: the row could not be written whole.
        """
        now = time.time()
        row = encode_row({"step": step, "time": round(now, 3), **metrics})
        with _explained(self._path):
            _write_whole(self._file.fileno(), row)
        if self._events is not None:
            self._events.write(step, metrics, now)

    def write_trajectories(
        self,
        step: int,
        trajectories: Sequence[Trajectory],
        grades: Sequence[Grade],
        advantages: Sequence[float | None] | None = None,
        token_numbers: Sequence[Mapping[str, Float32Array]] | None = None,
        *,
        evaluation_set: str | None = None,
    ) -> Path:
        """See the function `write_trajectories`; about 3 ms for 1,000 tokens, so a large step is worth a thread."""
        return write_trajectories(
            self._run_directory, step, trajectories, grades, advantages, token_numbers, evaluation_set=evaluation_set
        )

    def close(self) -> None:
        """Close the files. May be called twice."""
        self._file.close()
        if self._events is not None:
            self._events.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class EventWriter:
    """Scalars in TensorBoard's event format, written by the tensorboard package; needs no torch."""

    def __init__(self, directory: Path, resume_step: int | None = None) -> None:
        """Begin an event file. With `resume_step` TensorBoard forgets what older files say of that step and later."""
        from tensorboard.compat.proto import event_pb2, summary_pb2  # type: ignore[import-untyped]
        from tensorboard.summary.writer.record_writer import RecordWriter  # type: ignore[import-untyped]

        self._directory = directory
        self._event: Any = event_pb2.Event
        self._summary: Any = summary_pb2.Summary
        with _explained(directory):
            directory.mkdir(parents=True, exist_ok=True)
            name = f"events.out.tfevents.{time.time_ns() // 1_000_000}.{os.getpid()}"
            self._file = (directory / name).open("xb", buffering=0)
            self._records = RecordWriter(self._file)
            self._records.write(self._event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())
            if resume_step is not None:
                started = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
                event = self._event(wall_time=time.time(), step=resume_step, session_log=started)
                self._records.write(event.SerializeToString())

    def write(self, step: int, metrics: Mapping[str, float], wall_time: float) -> None:
        """Append one scalar for each metric.

        Raises:
            RecordError: it could not be written.
        """
        values = [self._summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
        event = self._event(wall_time=wall_time, step=step, summary=self._summary(value=values))
        with _explained(self._directory):
            self._records.write(event.SerializeToString())

    def close(self) -> None:
        """Close the event file."""
        self._file.close()


def write_trajectories(
    run_directory: Path,
    step: int,
    trajectories: Sequence[Trajectory],
    grades: Sequence[Grade],
    advantages: Sequence[float | None] | None = None,
    token_numbers: Sequence[Mapping[str, Float32Array]] | None = None,
    *,
    evaluation_set: str | None = None,
) -> Path:
    """Write all trajectories of a step, or of an evaluation, as one file; it appears whole or not at all.

    Raises:
        RecordError: it could not be written.
        ValueError: the numbers of trajectories, grades and advantages differ.
    """
    path = trajectory_file(run_directory, step, evaluation_set)
    given: Sequence[float | None] = [None] * len(trajectories) if advantages is None else advantages
    chosen = [None if advantage is None else float(advantage) for advantage in given]
    numbers = [{}] * len(trajectories) if token_numbers is None else token_numbers
    rows = zip(trajectories, grades, chosen, numbers, strict=True)
    with _explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        for row in rows:
            file.write(encode_row(encode_trajectory(TrajectoryRecord(step, *row))))
    return path


def truncate_records(run_directory: Path, step: int) -> None:
    """Remove what a resumed run will write again: metrics and trajectories of `step` and later.

    Raises:
        RecordError: they could not be removed.
    """
    truncate_metrics(run_directory, step)
    with _explained(run_directory):
        for path in sorted((run_directory / TRAJECTORY_DIRECTORY).glob("*.jsonl")):
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
    with replacing(path) as file:
        for row in kept:
            file.write(encode_row(row))


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Any]:
    """A file to write; it takes the place of `path` when all is on the disk, and is removed if that fails."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with _explained(path):
            with temporary.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def append_whole(path: Path, data: bytes) -> None:
    """Add `data` to the end of a file: all of it, or nothing.

    Raises:
        RecordError: it could not be written.
    """
    with _explained(path), path.open("ab", buffering=0) as file:
        _write_whole(file.fileno(), data)


def _write_whole(descriptor: int, data: bytes) -> None:
    """Write all of `data`, or as if nothing had been: a part that fitted on a full disk is taken back."""
    written = os.write(descriptor, data)
    if written == len(data):
        return
    try:
        while written < len(data):
            written += os.write(descriptor, data[written:])
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
        raise


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RecordError(f"{error.filename or path}: cannot be written: {error.strerror}") from error
