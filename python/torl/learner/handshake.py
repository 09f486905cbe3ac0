"""How ranks that others have started find the controller: it listens, each connects and says its number. No torch."""

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

from torl.errors import LearnerError

KEY_VARIABLE = "TORL_CONTROLLER_KEY"
"""Where a rank finds the secret of the controller's address: others see its command line."""
JOIN_SECONDS = 600.0  # until every process of the learner has come up
_POLL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class ControllerAddress:
    """Where the controller listens, and the secret that lets a rank in."""

    host: str
    port: int
    key: str


class RankListener:
    """The controller's side. Use as a context manager."""

    def __init__(self, host: str) -> None:
        """Listen on a free port of all addresses; ranks find it at `host`."""
        self._key = secrets.token_bytes(32)
        self._listener = Listener(("", 0))
        # The listening socket has no public name; without a time-out the end of the listener would not be noticed.
        self._listener._listener._socket.settimeout(_POLL_SECONDS)  # type: ignore[attr-defined]
        self.address = ControllerAddress(host, self._listener.address[1], self._key.hex())
        self._joined: queue.SimpleQueue[tuple[int, Connection]] = queue.SimpleQueue()
        self._given_up = False

    def accept(self, ranks: Collection[int]) -> dict[int, Connection]:
        """Wait for these ranks. Blocks.

        Raises:
            LearnerError: one did not come within ten minutes, or before `give_up`.
        """
        threading.Thread(target=self._listen, daemon=True).start()
        connections: dict[int, Connection] = {}
        deadline = time.monotonic() + JOIN_SECONDS
        while missing := sorted(set(ranks) - connections.keys()):
            if self._given_up or time.monotonic() > deadline:
                raise LearnerError(f"the learner ranks {missing} did not connect to the controller")
            try:
                rank, connection = self._joined.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                continue
            connections[rank] = connection
        return connections

    def _listen(self) -> None:
        """A thread for each who comes: one that says nothing, as what looks for open ports, keeps no rank waiting."""
        while True:
            try:
                connection: Any = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:  # closed
                return
            threading.Thread(target=self._greet, args=(connection,), daemon=True).start()

    def _greet(self, connection: Connection) -> None:
        try:
            deliver_challenge(connection, self._key)
            answer_challenge(connection, self._key)
            self._joined.put((connection.recv(), connection))
        except (EOFError, OSError, AuthenticationError):  # not one of ours
            connection.close()

    def cancel(self) -> None:
        """Let `accept` end, from any thread."""
        self._given_up = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._listener.close()


def connect_to_controller(address: ControllerAddress, rank: int) -> Connection:
    """In a rank's process: the connection to the controller, which knows the rank's number then.

    Raises:
        LearnerError: nobody listens there.
    """
    try:
        connection = Client((address.host, address.port), authkey=bytes.fromhex(address.key))
    except (OSError, EOFError, AuthenticationError) as error:
        raise LearnerError(f"rank {rank} found no controller at {address.host}:{address.port}: {error}") from error
    connection.send(rank)
    return connection
