"""The handshake between controller and ranks on other machines: the controller listens, ranks connect. No torch."""

import queue
import secrets
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge
from types import TracebackType
from typing import Any, Self

from torl.base.errors import LearnerError

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
