"""The controller's handle of one rank: its connection, log and process. No torch.

Used from one event loop. A rank is a child process on a socket pair or, on a node of a cluster, a process that a
launcher has started and that has connected to the controller.
"""

import asyncio
import subprocess
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from torl.base.runtime.processes.children import describe_exit, log_tail
from torl.learner.messages import RankReply, RowComputed, ShardWritten

CAUSE_SECONDS: Final = 0.5
"""Seconds for the cause of a failure to arrive: the failure of one rank makes others fail."""


class RankProcess:
    """A rank: its connection, its log file and, if the controller started it, its process."""

    def __init__(self, rank: int, connection: Connection, process: subprocess.Popen[bytes] | None, log: Path) -> None:
        self.rank = rank
        self.connection = connection
        self.process = process
        self.log = log
        self.replies: asyncio.Queue[RankReply | None] = asyncio.Queue()
        """Replies to requests. None after the connection was closed."""
        self.shards: asyncio.Queue[ShardWritten] = asyncio.Queue()
        """Reports of written checkpoints, which arrive at any time."""
        self.on_row: Callable[[], object] | None = None
        """Function that is called for each row that the rank has computed."""
        self.closed = asyncio.Event()
        asyncio.get_running_loop().add_reader(connection.fileno(), self._receive)
        self._listening = True

    def _receive(self) -> None:
        try:
            message: RankReply | RowComputed | ShardWritten = self.connection.recv()
            match message:
                case ShardWritten():
                    self.shards.put_nowait(message)
                case RowComputed():
                    if self.on_row is not None:
                        self.on_row()
                case _:
                    self.replies.put_nowait(message)
        except (EOFError, OSError):
            self.stop_listening()
            self.mark_lost()

    def mark_lost(self) -> None:
        """Record that the rank exited or its machine was lost."""
        self.replies.put_nowait(None)
        self.closed.set()

    def stop_listening(self) -> None:
        """Remove the connection from the event loop."""
        if self._listening:
            asyncio.get_running_loop().remove_reader(self.connection.fileno())
            self._listening = False

    def describe_death(self) -> str:
        """Return a sentence about how the process ended, and the end of its log."""
        status = None
        if self.process is not None:
            try:
                status = self.process.wait(timeout=CAUSE_SECONDS)
            except subprocess.TimeoutExpired:
                status = None
        how = "closed its connection" if status is None else describe_exit(status)
        return f"learner rank {self.rank} {how}; end of {self.log}:\n{log_tail(self.log)}"
