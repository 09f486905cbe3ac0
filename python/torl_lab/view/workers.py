"""The processes in which the viewer indexes and audits, so that both do not slow down its server.

`python -m torl_lab.view.workers PARENT index TARGETS` keeps the indexes of targets up to date, once a second. TARGETS
is JSON: `[[label, path, index, tokenizer], ...]`. Each message is the state of one target.

`python -m torl_lab.view.workers PARENT audit TARGET [trust]` checks trajectories, one for each request. It loads the
libraries of the tokenizer, and reads whole steps. Without the configuration of a run, trajectories are checked as in a
single file.
"""

import asyncio
import json
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

from torl.base.errors import TorlError
from torl.base.runtime.processes.children import JsonParent
from torl.base.trust import import_from_here
from torl_lab.view.index import DamagedIndexError
from torl_lab.view.indexing import Indexer
from torl_lab.view.sources import Target

Verify: TypeAlias = Callable[[Path, int | None], Awaitable[Sequence[Any]]]
"""A function of a file and a line, or None for all lines, to its checks (`torl_lab.audit.checks.Check`)."""
TRUST: Final = "trust"
"""The argument that allows what the run's files name."""
_POLL_SECONDS: Final = 1.0
_REPORT_SECONDS: Final = 0.2
_MAX_NAMED: Final = 5  # files that cannot be read


class _IndexWorker:
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
            unreadable = self._indexer.unreadable
            more = [f"and {len(unreadable) - _MAX_NAMED} more files"] if len(unreadable) > _MAX_NAMED else []
            self._report(done=1.0, error="\n".join([*unreadable[:_MAX_NAMED], *more]) or None)
        except (OSError, sqlite3.Error, DamagedIndexError) as error:
            self._report(done=None, error=f"the index cannot be written: {error}")

    def _on_progress(self, done: float) -> None:
        if time.monotonic() - self._reported > _REPORT_SECONDS:
            self._reported = time.monotonic()
            self._report(done=done, error=None)

    def _report(self, **state: Any) -> None:
        if state != self._last:
            self._last = state
            self._parent.send({"run": self._target.label, **state})


def follow(parent: JsonParent, targets: Sequence[Sequence[Any]]) -> None:
    """Update all indexes once a second, until the process is killed."""
    workers = [_IndexWorker(parent, *target) for target in targets]
    while True:
        for worker in workers:
            worker.update()
        time.sleep(_POLL_SECONDS)


async def audit(parent: JsonParent, target: Path, *, trust: bool) -> None:
    """Answer each request with the checks of the trajectory at `line` of `path`, of all without a line, or an error."""
    requests = parent.requests()
    async with AsyncExitStack() as stack:
        verify: Verify | None = None
        while (request := await asyncio.to_thread(next, requests, None)) is not None:
            try:
                if verify is None and Target("", target).is_run:
                    opened = import_module("torl_lab.audit.one").TrajectoryAudit(target, trust=trust)
                    verify = (await stack.enter_async_context(opened)).verify
                elif verify is None:
                    verify_file = import_module("torl_lab.audit.one_file").verify_file
                    verify = cast(Verify, partial(asyncio.to_thread, verify_file))
                checks = await verify(Path(request["path"]), request["line"])
                parent.send({"checks": [asdict(check) for check in checks]})
            except (TorlError, OSError) as error:
                parent.send({"error": str(error)})
            except ModuleNotFoundError as error:
                parent.send({"error": f"{error.name} is not installed: pip install 'torl[cpu]' or 'torl[gpu]'"})


if __name__ == "__main__":
    connected = JsonParent()
    work, argument, *options = sys.argv[2:]
    if work == "index":
        follow(connected, json.loads(argument))
    else:
        if options == [TRUST]:
            import_from_here()
        asyncio.run(audit(connected, Path(argument), trust=options == [TRUST]))
