"""Logs of what runs on nodes: kept on a node's own disk, and added to the run's files while the run goes on."""

import asyncio
import contextlib
import shutil
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path

from torl.errors import ActorDiedError
from torl.runtime.cluster.protocol import ActorHandle

_POLL_SECONDS = 0.5
_PIECE_BYTES = 1 << 20


class LogFolder:
    """On a node: a folder for the logs of what an object of a role starts. It goes when all has been handed over."""

    def __init__(self) -> None:
        """Make it."""
        self.path = Path(tempfile.mkdtemp(prefix="torl-logs-"))
        self._read: Counter[str] = Counter()  # bytes of each file
        self._closed = asyncio.Event()

    async def tail(self) -> AsyncGenerator[tuple[str, bytes], None]:
        """What is added to the files, by their names. Ends with what is there when the folder is closed."""
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
        """Say that nothing is written any more."""
        self._closed.set()

    def _next_piece(self, file: Path) -> bytes:
        with file.open("rb") as log:
            log.seek(self._read[file.name])
            piece = log.read(_PIECE_BYTES)
        self._read[file.name] += len(piece)
        return piece


async def gather_logs(role: ActorHandle, directory: Path) -> None:
    """Add what the method `logs` of an object gives to the files of a directory, until it ends or is gone."""
    await asyncio.to_thread(directory.mkdir, parents=True, exist_ok=True)
    with contextlib.suppress(ActorDiedError):
        async with contextlib.aclosing(role.stream("logs")) as written:
            async for name, piece in written:
                with (directory / name).open("ab") as log:
                    log.write(piece)
