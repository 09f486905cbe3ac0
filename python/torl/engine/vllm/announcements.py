"""News from the engine's core to the controller while turns are sampled: a code block has closed, a step was computed.

Datagrams on a local socket. They are hints: a block that is lost costs time and nothing else, a step that is lost is
followed by others. So the sender never waits.
"""

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_LARGEST = 1 << 20
_STEP_SECONDS = 0.5


class Announcer:
    """The engine's end."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._path = path
        self._next_step = 0.0

    def block(self, turn: str, code: str) -> None:
        """Say that a block of `turn` holds `code`, unless the controller is behind or dead, or the code too long."""
        self._send(["block", turn, code])

    def step(self) -> None:
        """Say that tokens were computed; at most twice in a second, so it may be called after every step."""
        if (now := time.monotonic()) >= self._next_step:
            self._next_step = now + _STEP_SECONDS
            self._send(["step"])

    def _send(self, message: list[Any]) -> None:
        with contextlib.suppress(OSError):
            self._socket.sendto(json.dumps(message).encode(), self._path)


class Listener:
    """The controller's end: calls whoever waits for a turn, on the event loop that `open` was called on."""

    def __init__(self, on_step: Callable[[], None]) -> None:
        """`on_step()` is called when the engine has computed."""
        self._on_step = on_step
        self._socket: socket.socket | None = None
        self._callbacks: dict[str, Callable[[str], None]] = {}

    def open(self, directory: Path) -> str:
        """Start listening; returns the path to send to, in `directory`."""
        path = str(directory / "blocks")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(path)
        asyncio.get_running_loop().add_reader(self._socket, self._read, self._socket)
        return path

    def subscribe(self, turn: str, callback: Callable[[str], None]) -> None:
        """Call `callback(code)` for each block of `turn` from now on."""
        self._callbacks[turn] = callback

    def unsubscribe(self, turn: str) -> None:
        """The turn is over."""
        self._callbacks.pop(turn, None)

    def _read(self, receiver: socket.socket) -> None:
        while True:
            try:
                message = receiver.recv(_LARGEST)
            except BlockingIOError:
                return
            match json.loads(message):
                case ["block", str(turn), str(code)]:
                    if (callback := self._callbacks.get(turn)) is not None:
                        callback(code)
                case ["step"]:
                    self._on_step()

    def close(self) -> None:
        """Stop listening. Safe to call twice."""
        listening, self._socket = self._socket, None
        if listening is not None:
            asyncio.get_running_loop().remove_reader(listening)
            listening.close()
