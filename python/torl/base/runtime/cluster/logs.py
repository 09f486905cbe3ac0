"""Logs of processes on nodes: written to a node's own disk, copied to the run directory while the run continues."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path

from torl.base.errors import ActorDiedError
from torl.base.runtime.cluster.protocol import ActorHandle
from torl.base.runtime.processes.resources import ScratchDirectory

_POLL_SECONDS = 0.5
_PIECE_BYTES = 1 << 20


class LogFolder:
    """A folder on a node for the logs of an actor's processes. Removed once all of them have been read.

    The folder of a killed actor is removed by the next one on its node.
    """

    def __init__(self) -> None:
        self._directory = ScratchDirectory("torl-logs-")
        self.path = self._directory.open()
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
            self._directory.close()

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
