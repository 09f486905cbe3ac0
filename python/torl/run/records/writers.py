"""Write the records of a run so that they survive its process.

Every row reaches the operating system before the call returns. A full disk or a removed directory raises `RecordError`:
a run must not continue without its records.
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from torl.base.errors import RecordError
from torl.base.types import UpdateNumbers
from torl.components.trackers import Example, Tracker, TrackerFeed
from torl.run.records.content import content_digests, learner_values
from torl.run.records.files import (
    EXAMPLES_FILE,
    METRICS_FILE,
    SUMMARY_FILE,
    append_atomically,
    atomic_write,
    record_errors,
    step_of_file,
    token_files,
    trajectory_file,
    trajectory_files,
    write_or_roll_back,
)
from torl.run.records.reading import read_rows
from torl.run.records.receipt import Receipt, digest_of
from torl.run.records.rows import TrajectoryRecord, encode_row, encode_trajectory
from torl.run.records.tokens import TokenKey, write_token_numbers

MAX_EXAMPLES: Final = 4
"""Number of trajectories of a step or an evaluation that trackers receive."""


class RunWriter:
    """Writes the metrics of a run, to `metrics.jsonl` and to trackers, and its trajectories.

    Call it from one thread at a time. Close it, or use it as a context manager.
    """

    def __init__(
        self,
        run_directory: Path,
        *,
        resume_step: int | None = None,
        trackers: Sequence[Tracker] = (),
        warn: Callable[[str], object] = lambda _: None,
        facts: Mapping[str, Any] | None = None,
        configs: Mapping[Path, bytes] | None = None,
    ) -> None:
        """Open the files.

        Args:
            run_directory: Directory of the run, created if it is missing.
            resume_step: First step that the resumed run writes again: its records and later ones are removed. None for
                a new run.
            trackers: Further destinations of the metrics.
            warn: Function that receives the first failure of each tracker, in another thread.
            facts: Facts of the start for the receipt.
            configs: Files of its configuration (`config_files`).

        Raises:
            RecordError: The directory cannot be written, old rows are damaged, or a new run finds old rows.
        """
        self._run_directory = run_directory
        self._path = run_directory / METRICS_FILE
        with record_errors(run_directory):
            run_directory.mkdir(parents=True, exist_ok=True)
            if resume_step is None and self._path.exists() and self._path.stat().st_size > 0:
                raise RecordError(f"{self._path}: contains the metrics of another run")
            kept = {} if resume_step is None else rows_before(run_directory, resume_step)
            self._path.touch()
            # In this order: a receipt that has more than the directory is a mismatch for an audit, which takes records
            # from the step of a last start on as those that the start removes, and knows what its configuration
            # replaces. Earlier records belong to the earlier configuration.
            self._receipt = Receipt.start(run_directory, resume_step, facts or {}, configs)
            if resume_step is not None:
                (run_directory / SUMMARY_FILE).unlink(missing_ok=True)
                truncate_records(run_directory, resume_step, kept)
            for path, data in (configs or {}).items():
                with atomic_write(path) as file:
                    file.write(data)
            self._file = self._path.open("ab", buffering=0)
        self._written: list[Path] = []
        self._content: dict[str, Any] = {}
        self._feed = TrackerFeed(trackers, run_directory, warn)

    def write_metrics(self, step: int, metrics: Mapping[str, float], *, weights: str | None = None) -> None:
        """Append one row, with `step` and `time` added, and a line of the receipt with the files before it.

        Names are defined in `torl.run.records.metric_names`.

        Args:
            step: Step of the row.
            metrics: Values by name.
            weights: Digest of the policy's weights after the step, for the receipt.

        Raises:
            RecordError: The row could not be written, or the file no longer exists.
        """
        now = time.time()
        row = encode_row({"step": step, "time": round(now, 3), **metrics})
        self._check_place()
        with record_errors(self._path):
            write_or_roll_back(self._file.fileno(), row)
        self._append_receipt(step, metrics, row, weights)
        values = dict(metrics)
        self._feed.send(lambda tracker: tracker.write(step, values, now))

    def write_examples(self, step: int, ids: Sequence[str]) -> None:
        """Append the ids of the examples of a step of fine-tuning.

        Raises:
            RecordError: The row could not be written, or the run directory no longer exists.
        """
        self._check_place()
        append_atomically(self._run_directory / EXAMPLES_FILE, encode_row({"step": step, "examples": list(ids)}))
        self._content = {"content": {"examples": digest_of(list(ids))}}

    def write_trajectories(
        self, step: int, records: Sequence[TrajectoryRecord], *, evaluation_set: str | None = None
    ) -> Path:
        """Write the trajectories of a step (`write_trajectories`); takes about 3 ms per 1,000 tokens.

        Raises:
            RecordError: The file could not be written, or the run directory no longer exists.
        """
        self._check_place()
        rows = list(map(encode_trajectory, records))
        path = write_trajectory_rows(self._run_directory, step, rows, evaluation_set=evaluation_set)
        self._written.append(path)
        if evaluation_set is None:
            self._content = {"content": content_digests(rows)}
        if examples := choose_examples(records):
            self._feed.send(lambda tracker: tracker.write_examples(step, examples, evaluation_set))
        return path

    def write_tokens(self, step: int, numbers: Mapping[TokenKey, UpdateNumbers]) -> None:
        """Write the learner's numbers of tokens of a step, if there are any.

        Raises:
            RecordError: The file could not be written, or the run directory no longer exists.
        """
        self._check_place()
        if numbers:
            self._written.append(write_token_numbers(self._run_directory, step, numbers))

    def _append_receipt(self, step: int, metrics: Mapping[str, float], row: bytes, weights: str | None) -> None:
        facts: dict[str, Any] = {"row": hashlib.sha256(row).hexdigest(), **self._content}
        if values := learner_values(metrics):
            facts["learner"] = digest_of(values)
        if weights is not None:
            facts["weights"] = weights
        self._receipt.append("row", step, self._written, **facts)
        self._written, self._content = [], {}

    def close(self, failed: bool = False) -> None:
        """Close the files and the trackers. May be called twice.

        Args:
            failed: Whether an exception ended the run.
        """
        self._file.close()
        self._feed.close(failed)

    def _check_place(self) -> None:
        """Check that the open file is still in the directory: a removed file accepts writes, too."""
        with record_errors(self._path):
            there = os.path.samestat(self._path.stat(), os.fstat(self._file.fileno()))
        if not there:
            raise RecordError(f"{self._path}: was replaced while the run was writing it")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close(failed=error is not None)


def choose_examples(records: Sequence[TrajectoryRecord]) -> list[Example]:
    """Return a few right and a few wrong trajectories in their order, preferably with tool calls."""

    def with_calls_first(correct: bool) -> Iterator[int]:
        found = [index for index, record in enumerate(records) if record.grade.correct == correct]
        yield from sorted(found, key=lambda index: (not records[index].trajectory.tool_calls, index))

    pairs = zip_longest(with_calls_first(False), with_calls_first(True))
    chosen = [index for pair in pairs for index in pair if index is not None][:MAX_EXAMPLES]
    return [_example(records[index]) for index in sorted(chosen)]


def _example(record: TrajectoryRecord) -> Example:
    trajectory, grade = record.trajectory, record.grade
    problem = trajectory.prompt.problem
    return Example(problem.id, problem.question, trajectory.text, problem.answer, grade.correct, float(grade.total))


def write_trajectories(
    run_directory: Path, step: int, records: Sequence[TrajectoryRecord], *, evaluation_set: str | None = None
) -> Path:
    """Write all trajectories of a step, or of an evaluation, as one file, atomically.

    Args:
        run_directory: Existing directory of the run.
        step: Step of all records.
        records: Records in the order of the file.
        evaluation_set: Name of the evaluation set. None for a training step.

    Raises:
        RecordError: The file could not be written.
        ValueError: A record belongs to another step.
    """
    return write_trajectory_rows(run_directory, step, map(encode_trajectory, records), evaluation_set=evaluation_set)


def write_trajectory_rows(
    run_directory: Path, step: int, rows: Iterable[Mapping[str, Any]], *, evaluation_set: str | None = None
) -> Path:
    """Write rows of trajectories as one file, atomically; see `write_trajectories`."""
    path = trajectory_file(run_directory, step, evaluation_set)
    with record_errors(path):
        path.parent.mkdir(exist_ok=True)
    with atomic_write(path) as file:
        for row in rows:
            if row["step"] != step:
                raise ValueError(f"a record of step {row['step']} in a file of step {step}")
            file.write(encode_row(row))
    return path


def truncate_records(run_directory: Path, step: int, kept: Mapping[Path, Iterable[Mapping[str, Any]]]) -> None:
    """Remove the records of `step` and later, which a resumed run writes again.

    Args:
        run_directory: Directory of the run.
        step: First step that is written again.
        kept: Rows that remain, by file (`rows_before`). Each file is replaced atomically.

    Raises:
        RecordError: The records could not be removed.
    """
    for path, rows in kept.items():
        with atomic_write(path) as file:
            file.writelines(map(encode_row, rows))
    with record_errors(run_directory):
        for path in trajectory_files(run_directory):
            file_step = step_of_file(path)
            if file_step is not None and file_step >= step:
                path.unlink()
        for written, path in token_files(run_directory).items():
            if written >= step:
                path.unlink()


def rows_before(run_directory: Path, step: int) -> dict[Path, list[dict[str, Any]]]:
    """Return the rows of metrics and of examples before a step, by file, without an unfinished last line.

    Raises:
        RecordError: A row is damaged.
    """
    kept: dict[Path, list[dict[str, Any]]] = {}
    for path in (run_directory / METRICS_FILE, run_directory / EXAMPLES_FILE):
        if path.exists():
            rows = list(read_rows(path))
            if not all(isinstance(row.get("step"), int) for row in rows):
                raise RecordError(f"{path}: damaged: a row has no step")
            kept[path] = [row for row in rows if row["step"] < step]
    return kept
