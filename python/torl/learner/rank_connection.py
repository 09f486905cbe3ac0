"""The connection of controller and rank: the handshake, and the controller's handle of a rank. No torch.

Used from one event loop. A rank is a child process on a socket pair or, on a node of a cluster, a process that a
launcher has started and that has connected to the controller.
"""

import asyncio
import queue
import secrets
import subprocess
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from torl.base.errors import LearnerError
from torl.base.runtime.processes.children import describe_exit, log_tail
from torl.learner.messages import RankReply, RowComputed, ShardWritten

KEY_VARIABLE = "TORL_CONTROLLER_KEY"
"""Environment variable with the secret of the controller's address. Other users can read a command line."""

_JOIN_SECONDS = 600.0  # in which all ranks must connect
_POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class ControllerAddress:
    """The address of the listening controller, and the secret that authenticates ranks."""

    host: str
    port: int
    key: str


class RankListener:
    """The controller's side of the handshake. Use as a context manager."""

    def __init__(self, host: str) -> None:
        """Listen on a free port of all interfaces. `host` is the address that ranks connect to."""
        self._key = secrets.token_bytes(32)
        self._listener = Listener(("", 0))
        # The listening socket has no public name. Without a timeout its thread would not notice that it was closed.
        self._listener._listener._socket.settimeout(_POLL_SECONDS)  # type: ignore[attr-defined]
        self.address = ControllerAddress(host, self._listener.address[1], self._key.hex())
        self._joined: queue.SimpleQueue[tuple[int, Connection]] = queue.SimpleQueue()
        self._cancelled = False

    def accept(self, ranks: Collection[int]) -> dict[int, Connection]:
        """Wait for these ranks and return their connections. Blocks.

        Raises:
            LearnerError: A rank did not connect within ten minutes, or before `cancel`.
        """
        threading.Thread(target=self._listen, daemon=True).start()
        connections: dict[int, Connection] = {}
        deadline = time.monotonic() + _JOIN_SECONDS
        while missing := sorted(set(ranks) - connections.keys()):
            if self._cancelled or time.monotonic() > deadline:
                raise LearnerError(f"the learner ranks {missing} did not connect to the controller")
            try:
                rank, connection = self._joined.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                continue
            connections[rank] = connection
        return connections

    def _listen(self) -> None:
        """Start a thread for each client, so that a client that sends nothing (a port scanner) delays no rank."""
        while True:
            try:
                connection: Any = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:  # closed
                return
            threading.Thread(target=self._authenticate, args=(connection,), daemon=True).start()

    def _authenticate(self, connection: Connection) -> None:
        try:
            deliver_challenge(connection, self._key)
            answer_challenge(connection, self._key)
            self._joined.put((connection.recv(), connection))
        except (EOFError, OSError, AuthenticationError):  # not a rank of this learner
            connection.close()

    def cancel(self) -> None:
        """Make `accept` raise. Callable from any thread."""
        self._cancelled = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._listener.close()


def connect_to_controller(address: ControllerAddress, rank: int) -> Connection:
    """Connect a rank's process to the controller.

    Raises:
        LearnerError: The controller does not listen at the address, or rejects the key.
    """
    try:
        connection = Client((address.host, address.port), authkey=bytes.fromhex(address.key))
    except (OSError, EOFError, AuthenticationError) as error:
        raise LearnerError(f"rank {rank} found no controller at {address.host}:{address.port}: {error}") from error
    connection.send(rank)
    return connection


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
