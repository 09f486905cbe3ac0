"""A run's metrics as TensorBoard shows them."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torl.records.files import record_errors


class EventWriter:
    """Scalars in TensorBoard's event format, written by the tensorboard package; needs no torch."""

    def __init__(self, directory: Path, resume_step: int | None = None) -> None:
        """Begin an event file. With `resume_step` TensorBoard forgets what older files say of that step and later."""
        from tensorboard.compat.proto import event_pb2, summary_pb2  # type: ignore[import-untyped]
        from tensorboard.summary.writer.record_writer import RecordWriter  # type: ignore[import-untyped]

        self._directory = directory
        self._event: Any = event_pb2.Event
        self._summary: Any = summary_pb2.Summary
        with record_errors(directory):
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
        with record_errors(self._directory):
            self._records.write(event.SerializeToString())

    def close(self) -> None:
        """Close the event file."""
        self._file.close()
