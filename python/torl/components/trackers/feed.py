"""A thread that feeds the trackers of a run, so that a slow or failing one neither delays nor stops the run."""

import queue
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from torl.base.errors import TorlError
from torl.base.guard import location
from torl.components.trackers.tracker import Tracker

LOG_FILE: Final = Path("logs") / "trackers.log"
CLOSE_TIMEOUT_SECONDS: Final = 60.0
"""Grace period at the end of a run. A tracker that sends for longer is left."""


class TrackerFeed:
    """Passes calls to trackers in order, in a separate thread."""

    def __init__(self, trackers: Sequence[Tracker], run_directory: Path, warn: Callable[[str], object]) -> None:
        """Start the thread if there are trackers.

        Args:
            trackers: Trackers.
            run_directory: Directory of the run, for `LOG_FILE`.
            warn: Function that receives the first failure of each tracker. It must be thread-safe.
        """
        self._trackers, self._path, self._warn = trackers, run_directory / LOG_FILE, warn
        self._calls: queue.SimpleQueue[Callable[[Tracker], None] | None] = queue.SimpleQueue()
        self._failing: set[int] = set()
        self._thread = threading.Thread(target=self._run, name="trackers", daemon=True) if trackers else None
        if self._thread is not None:
            self._thread.start()

    def send(self, call: Callable[[Tracker], None]) -> None:
        """Pass a call to all trackers, and return at once."""
        if self._thread is not None:
            self._calls.put(call)

    def close(self, failed: bool) -> None:
        """Pass on all calls and close the trackers. May be called twice."""
        if self._thread is None:
            return
        self.send(lambda tracker: tracker.close(failed))
        self._calls.put(None)
        self._thread.join(CLOSE_TIMEOUT_SECONDS)
        if self._thread.is_alive():
            self._warn(
                f"a tracker has not finished after {CLOSE_TIMEOUT_SECONDS:.0f} s; the run's own files are complete"
            )
        self._thread = None

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            for index, tracker in enumerate(self._trackers):
                try:
                    call(tracker)
                except Exception as error:
                    self._report(index, tracker, error)

    def _report(self, index: int, tracker: Tracker, error: Exception) -> None:
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        text = str(error) if isinstance(error, TorlError) else f"{location(tracker)}: {type(error).__name__}: {error}"
        try:
            self._path.parent.mkdir(exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{now} {text}\n{''.join(traceback.format_exception(error))}\n")
        except OSError:
            pass  # the run itself reports a full disk or a removed directory
        if index not in self._failing:
            self._failing.add(index)
            self._warn(f"{text}\nthe run continues; further failures of this tracker are in {self._path}")
