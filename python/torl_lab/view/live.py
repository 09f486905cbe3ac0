"""The state of all targets, which follows the files, and notifies the open pages."""

import asyncio
import json
import sqlite3
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import closing, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from torl.base.runtime.processes.children import ChildExitedError, JsonChild
from torl.base.runtime.processes.supervision import run_in_thread
from torl_lab.view.columns import IndexReader
from torl_lab.view.overview import RunRecordsReader
from torl_lab.view.sources import Target
from torl_lab.view.workers import TRUST

_WORKERS: Final = "torl_lab.view.workers"
_POLL_SECONDS: Final = 0.5
_RESTART_SECONDS: Final = 5.0
_KEEPALIVE_SECONDS: Final = 15.0
_AUDIT_IDLE_SECONDS: Final = 120.0
# Nothing that the viewer starts may download a model.
_OFFLINE: Final = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


class ViewedTarget:
    """A target with the readers of its files, its sandbox and its auditor."""

    def __init__(self, target: Target, index: Path) -> None:
        self.target = target
        self.index = index
        self.reader = IndexReader(target, index)
        self.records = RunRecordsReader(self.reader)
        self._replayer: Any = None
        self.progress: float | None = 0.0
        """Indexed fraction of the files. None if the index cannot be written."""
        self.error: str | None = None
        """Error of the process that writes the index, or the files that it cannot read."""
        self._read_error: str | None = None
        self._audit: JsonChild | None = None
        self._audit_lock = asyncio.Lock()
        self._audit_used = 0.0

    async def verify(self, path: Path, line: int | None) -> Mapping[str, Any]:
        """Return the checks of a trajectory by `torl verify`, or of all trajectories of a file, or an error.

        Raises:
            ChildExitedError: The auditor exited.
        """
        async with self._audit_lock:
            self._audit_used = time.monotonic()
            if self._audit is None:
                trust = [TRUST] if self.target.trust else []
                self._audit = JsonChild(_WORKERS, "audit", str(self.target.path), *trust, environment=_OFFLINE)
            try:
                reply: Mapping[str, Any] = await run_in_thread(self._audit.ask, {"path": str(path), "line": line})
            except BaseException:
                self._stop_audit()  # an answer that no request waits for would be the next one's
                raise
            self._audit_used = time.monotonic()
            return reply

    async def refresh(self) -> None:
        """Read the rows that the index has gained. An error is part of the state until the index can be read again."""
        try:
            await asyncio.to_thread(self.reader.refresh)
            self._read_error = None
        except (OSError, sqlite3.Error) as error:
            self._read_error = f"the index cannot be read: {error}"

    @property
    def replayer(self) -> Any:
        """The `replay.Replayer` of the target. It is imported with the first call that is run again."""
        if self._replayer is None:
            self._replayer = import_module("torl_lab.view.replay").Replayer(self.target)
        return self._replayer

    def stop_idle_audit(self) -> None:
        """Stop the auditor if it was not used lately: it holds the tokenizer's libraries and a step in memory."""
        is_idle = time.monotonic() - self._audit_used > _AUDIT_IDLE_SECONDS
        if is_idle and not self._audit_lock.locked():
            self._stop_audit()

    def _stop_audit(self) -> None:
        audit, self._audit = self._audit, None
        if audit is not None:
            audit.close()

    def state(self) -> dict[str, Any]:
        """Return the state of the index and of the records as JSON; it changes with every change of either."""
        columns = self.reader.columns()
        return {
            "run": self.target.label,
            "rows": len(columns),
            "revision": columns.revision,
            "progress": self.progress,
            "error": self.error or self._read_error,
            "records": self.records.stamp(),
        }

    async def close(self) -> None:
        """Stop the sandbox and the auditor."""
        self._stop_audit()
        if self._replayer is not None:
            await self._replayer.close()
        self.reader.close()


class LiveState:
    """All targets, and the process that indexes them."""

    def __init__(self, targets: Sequence[Target], cache: Path | None) -> None:
        self.targets = {each.label: ViewedTarget(each, each.index_path(cache)) for each in targets}
        self._changed = asyncio.Condition()
        self._version = 0
        self._is_ending = False
        self._states: list[dict[str, Any]] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start indexing and watching."""
        await self._poll()
        self._tasks = [asyncio.create_task(self._index()), asyncio.create_task(self._watch())]

    def end(self) -> None:
        """End the streams of states at the next poll."""
        self._is_ending = True

    async def close(self) -> None:
        """Stop all processes."""
        for task in self._tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        for each in self.targets.values():
            await each.close()

    async def states(self) -> AsyncIterator[list[dict[str, Any]] | None]:
        """Yield the states of all targets now and after each change, and None if nothing changed for a while."""
        seen = -1
        while not self._is_ending:
            async with self._changed:
                try:
                    async with asyncio.timeout(_KEEPALIVE_SECONDS):
                        while self._version == seen and not self._is_ending:
                            await self._changed.wait()
                except TimeoutError:
                    states = None
                else:
                    seen, states = self._version, self._states
            yield states

    async def _index(self) -> None:
        targets = [
            [label, str(each.target.path), str(each.index), each.target.tokenizer]
            for label, each in self.targets.items()
        ]
        while True:
            with closing(JsonChild(_WORKERS, "index", json.dumps(targets))) as child, suppress(ChildExitedError):
                while True:
                    message = await run_in_thread(child.receive)
                    target = self.targets[message["run"]]
                    target.progress, target.error = message["done"], message["error"]
            for target in self.targets.values():
                target.error = "the process that writes the index has exited, and is started again"
            await asyncio.sleep(_RESTART_SECONDS)

    async def _watch(self) -> None:
        while True:
            await self._poll()
            for target in self.targets.values():
                target.stop_idle_audit()
            await asyncio.sleep(_POLL_SECONDS)

    async def _poll(self) -> None:
        for target in self.targets.values():
            await target.refresh()
        states = [target.state() for target in self.targets.values()]
        if states != self._states or self._is_ending:
            async with self._changed:
                self._states = states
                self._version += 1
                self._changed.notify_all()
