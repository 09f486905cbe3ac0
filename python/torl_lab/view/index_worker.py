"""`python -m torl_lab.view.index_worker PARENT TARGETS`: keep the indexes of targets up to date, and report progress.

A separate process, so that reading rows does not slow down the server. TARGETS is JSON:
`[[label, path, index, tokenizer], ...]`. Each message is the state of one target.
"""

import json
import sqlite3
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from torl.base.runtime.processes.children import JsonParent
from torl_lab.view.index import DamagedIndexError
from torl_lab.view.indexing import Indexer, Progress
from torl_lab.view.sources import Target

_POLL_SECONDS: Final = 1.0
_REPORT_SECONDS: Final = 0.2
_MAX_NAMED: Final = 5  # files that cannot be read


class _Worker:
    """The indexer of one target with its last error."""

    def __init__(self, parent: JsonParent, label: str, path: str, index: str, tokenizer: str | None) -> None:
        self._parent = parent
        self._target = Target(label, Path(path), tokenizer)
        self._index = Path(index)
        self._indexer: Indexer | None = None
        self._reported = 0.0
        self._has_vocabulary = False
        self._last: dict[str, Any] = {}

    def update(self) -> None:
        """Bring the index up to date and report the result."""
        try:
            self._indexer = self._indexer or Indexer(self._target, self._index)
            changes = self._indexer.update(self._on_progress)
            # After the rows, because reading a tokenizer takes a second; again with new rows if it was missing.
            if not self._has_vocabulary and (changes or not self._last):
                self._has_vocabulary = self._indexer.store_vocabulary()
            self._report(done=1.0, error=_summary(self._indexer.unreadable))
        except (OSError, sqlite3.Error, DamagedIndexError) as error:
            self._report(done=None, error=f"the index cannot be written: {error}")

    def _on_progress(self, progress: Progress) -> None:
        if time.monotonic() - self._reported > _REPORT_SECONDS:
            self._reported = time.monotonic()
            self._report(done=progress.done / max(1, progress.total), error=None)

    def _report(self, **state: Any) -> None:
        if state != self._last:
            self._last = state
            self._parent.send({"run": self._target.label, **state})


def _summary(unreadable: Sequence[str]) -> str | None:
    more = len(unreadable) - _MAX_NAMED
    return "\n".join([*unreadable[:_MAX_NAMED], *([f"and {more} more files"] if more > 0 else [])]) or None


def follow(parent: JsonParent, targets: Sequence[Sequence[Any]]) -> None:
    """Update all indexes once a second, until the process is killed."""
    workers = [_Worker(parent, *target) for target in targets]
    while True:
        for worker in workers:
            worker.update()
        time.sleep(_POLL_SECONDS)


if __name__ == "__main__":
    follow(JsonParent(), json.loads(sys.argv[2]))
