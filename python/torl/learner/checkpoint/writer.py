"""Writing a rank's part of a checkpoint behind the training."""

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

from torl.learner.checkpoint.snapshot import Snapshot
from torl.learner.messages import ShardWritten

_FULL_DISK_BYTES = 1 << 20  # fewer free bytes than this after a failed write: the disk is full


class CheckpointWriter:
    """A thread of the rank that writes one snapshot at a time and then says so."""

    def __init__(self, rank: int, report: Callable[[ShardWritten], None]) -> None:
        """`report` is called in the thread."""
        self._rank = rank
        self._report = report
        self._thread: threading.Thread | None = None

    def write(self, snapshot: Snapshot, directory: Path) -> None:
        """Begin to write; what became of it is reported. The snapshot is let go as soon as it is on the disk."""
        self.wait()
        self._thread = threading.Thread(target=self._write, args=(snapshot, directory), name="checkpoint-writer")
        self._thread.start()

    def wait(self) -> None:
        """Return when what was begun has ended."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _write(self, snapshot: Snapshot, directory: Path) -> None:
        try:
            self._report(ShardWritten(snapshot.write(directory)))
        except Exception as error:  # the controller decides what becomes of the run
            full = isinstance(error, OSError) and shutil.disk_usage(directory).free < _FULL_DISK_BYTES
            reason = "the disk is full" if full else f"{type(error).__name__}: {error}"
            self._report(
                ShardWritten({}, f"rank {self._rank} could not write its part of checkpoint {directory}: {reason}")
            )
