"""Logs of processes on nodes: written to a node's own disk, copied to the run directory while the run continues."""

import asyncio
import contextlib
import shutil
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from torl.errors import ActorDiedError
from torl.runtime.cluster.protocol import ActorHandle, Cluster

_POLL_SECONDS = 0.5
_PIECE_BYTES = 1 << 20
_RESPONSE_SECONDS = 20.0  # timeout of a request that a busy actor may not answer


class LogFolder:
    """A folder on a node for the logs of an actor's processes. Removed once all of them have been read."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="torl-logs-"))
        self._read: Counter[str] = Counter()  # bytes of each file
        self._closed = asyncio.Event()

    async def tail(self) -> AsyncGenerator[tuple[str, bytes], None]:
        """Yield additions to the files, as pairs (name, bytes), until the folder is closed and read."""
        try:
            closed = False
            while not closed:
                closed = self._closed.is_set()
                for file in sorted(self.path.iterdir()):
                    while piece := self._next_piece(file):
                        yield file.name, piece
                if not closed:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._closed.wait(), _POLL_SECONDS)
        finally:
            shutil.rmtree(self.path, ignore_errors=True)

    def close(self) -> None:
        """Mark the logs as complete."""
        self._closed.set()

    def _next_piece(self, file: Path) -> bytes:
        with file.open("rb") as log:
            log.seek(self._read[file.name])
            piece = log.read(_PIECE_BYTES)
        self._read[file.name] += len(piece)
        return piece


async def gather_logs(actor: ActorHandle, directory: Path) -> None:
    """Append the stream `logs` of an actor to the files of a directory, until it ends or the actor is lost."""
    await asyncio.to_thread(directory.mkdir, parents=True, exist_ok=True)
    with contextlib.suppress(ActorDiedError):
        async with contextlib.aclosing(actor.stream("logs")) as pieces:
            async for name, piece in pieces:
                with (directory / name).open("ab") as log:
                    log.write(piece)


@dataclass(frozen=True, slots=True)
class LoggedActor:
    """An actor with the methods `logs` and `close`, whose logs are gathered while it runs.

    Attributes:
        handle: Handle of the actor.
        gathering: Task that gathers the logs.
    """

    handle: ActorHandle
    gathering: "asyncio.Task[None]"

    @classmethod
    async def start(cls, cluster: Cluster, node: int, make: Callable[[], object], *, name: str, logs: Path) -> Self:
        """Start an actor on a node, and gather its logs in the directory `logs`. Raises as `Cluster.start_actor`."""
        handle = await cluster.start_actor(node, make, name=name)
        return cls(handle, asyncio.create_task(gather_logs(handle, logs)))

    async def request(self, method: str, *arguments: Any, timeout_seconds: float = _RESPONSE_SECONDS) -> None:
        """Call a method. Return without an error if the actor is lost or does not respond in time."""
        with contextlib.suppress(ActorDiedError, TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self.handle.call(method, *arguments)

    async def close(self, *, timeout_seconds: float = _RESPONSE_SECONDS) -> None:
        """Close the actor, gather the rest of its logs, and kill it."""
        try:
            await self.request("close", timeout_seconds=timeout_seconds)
            await asyncio.wait([self.gathering], timeout=_RESPONSE_SECONDS)
        finally:
            self.gathering.cancel()
            await self.handle.kill()
