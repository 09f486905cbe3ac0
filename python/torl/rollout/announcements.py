"""News from the engine's core to the controller: a code block has closed, though its turn goes on.

Datagrams on a local socket. They are hints: one that is lost costs time and nothing else, so the sender never waits.
"""

import asyncio
import contextlib
import json
import shutil
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path

_LARGEST = 1 << 20


class BlockAnnouncer:
    """The engine's end."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._path = path

    def send(self, turn: str, code: str) -> None:
        """Say that a block of `turn` holds `code`, unless the controller is behind or gone, or the code too long."""
        with contextlib.suppress(OSError):
            self._socket.sendto(json.dumps([turn, code]).encode(), self._path)


class BlockListener:
    """The controller's end: calls whoever waits for a turn, on the event loop that `open` was called on."""

    def __init__(self) -> None:
        self._directory: Path | None = None
        self._socket: socket.socket | None = None
        self._callbacks: dict[str, Callable[[str], None]] = {}

    def open(self) -> str:
        """Start listening; returns the path to send to, in a directory that nobody else can enter."""
        self._directory = Path(tempfile.mkdtemp(prefix="torl-"))
        path = str(self._directory / "blocks")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(path)
        asyncio.get_running_loop().add_reader(self._socket, self._read, self._socket)
        return path

    def expect(self, turn: str, callback: Callable[[str], None]) -> None:
        """Call `callback(code)` for each block of `turn` from now on."""
        self._callbacks[turn] = callback

    def forget(self, turn: str) -> None:
        """The turn is over."""
        self._callbacks.pop(turn, None)

    def _read(self, receiver: socket.socket) -> None:
        while True:
            try:
                message = receiver.recv(_LARGEST)
            except BlockingIOError:
                return
            turn, code = json.loads(message)
            if (callback := self._callbacks.get(turn)) is not None:
                callback(code)

    def close(self) -> None:
        """Stop listening. Safe to call twice."""
        listening, self._socket = self._socket, None
        if listening is not None:
            asyncio.get_running_loop().remove_reader(listening)
            listening.close()
        directory, self._directory = self._directory, None
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)
