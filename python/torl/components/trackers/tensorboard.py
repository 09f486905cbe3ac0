"""TensorBoard's event files."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torl.components.trackers.tracker import Tracker


class TensorBoard(Tracker):
    """Scalars in TensorBoard's event format, in `tensorboard/`; needs no torch."""

    def __init__(self, run_directory: Path, resume_step: int | None) -> None:
        """Create an event file. TensorBoard ignores older files from `resume_step` on."""
        from tensorboard.compat.proto import event_pb2, summary_pb2  # type: ignore[import-untyped]
        from tensorboard.summary.writer.record_writer import RecordWriter  # type: ignore[import-untyped]

        self._event: Any = event_pb2.Event
        self._summary: Any = summary_pb2.Summary
        directory = run_directory / "tensorboard"
        directory.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time_ns()}.{os.getpid()}"
        self._file = (directory / name).open("xb", buffering=0)
        self._records = RecordWriter(self._file)
        self._records.write(self._event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())
        if resume_step is not None:
            started = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            event = self._event(wall_time=time.time(), step=resume_step, session_log=started)
            self._records.write(event.SerializeToString())

    def write(self, step: int, metrics: Mapping[str, float], wall_time: float) -> None:
        values = [self._summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
        event = self._event(wall_time=wall_time, step=step, summary=self._summary(value=values))
        self._records.write(event.SerializeToString())

    def close(self, failed: bool = False) -> None:
        self._file.close()
