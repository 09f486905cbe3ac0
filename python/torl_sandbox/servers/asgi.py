"""ASGI applications around a server's own: cancellation on disconnects, limits on bodies, and an orderly end."""

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

from torl_sandbox.servers.http import refusal

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_DISCONNECTED = ("http.disconnect", "websocket.disconnect")
_RESTART: Message = {"type": "websocket.disconnect", "code": 1012}
_MAX_QUEUED = 4  # messages read ahead of the application
_LINGERING_BYTES = 64 << 20  # maximum size of a refused request that is read and dropped


class CancelOnDisconnect:
    """An ASGI application that cancels the work for clients that disconnect, and refuses large bodies with 413.

    A server reports a disconnect in a message, which a busy application does not receive.
    """

    def __init__(self, app: Application, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._ending = False
        self._idle: set[asyncio.Queue[Message]] = set()  # of WebSockets whose application waits for a message

    def end(self) -> None:
        """End WebSockets: idle ones now, others after the answer to their message. HTTP requests are answered."""
        self._ending = True
        for messages in self._idle:
            with suppress(asyncio.QueueFull):  # a message has arrived
                messages.put_nowait(_RESTART)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a connection."""
        if scope["type"] != "websocket" and scope.get("method") != "POST":
            await self._app(scope, receive, send)
            return
        if scope["type"] == "http" and _declared_bytes(scope) > self._max_bytes:
            await _refuse(receive, send)
            return
        messages: asyncio.Queue[Message] = asyncio.Queue(_MAX_QUEUED)
        next_message = messages.get if scope["type"] == "http" else lambda: self._next_message(messages)
        work = asyncio.ensure_future(self._app(scope, next_message, send))
        forwarding = asyncio.ensure_future(_forward(receive, messages, self._max_bytes))
        try:
            await asyncio.wait((work, forwarding), return_when=asyncio.FIRST_COMPLETED)
            refused = not work.done() and forwarding.result()
        finally:
            forwarding.cancel()
            disconnected = work.cancel()
        try:
            await work
        except asyncio.CancelledError:
            pass
        except Exception:
            # The application cannot send its error to a client that disconnected.
            if not disconnected:
                raise
        if refused:
            await _refuse(receive, send)

    async def _next_message(self, messages: "asyncio.Queue[Message]") -> Message:
        if self._ending:
            return _RESTART
        self._idle.add(messages)
        try:
            return await messages.get()
        finally:
            self._idle.discard(messages)


async def _forward(receive: Receive, messages: "asyncio.Queue[Message]", max_bytes: int) -> bool:
    """Forward messages until the client disconnects (False) or exceeds the limit on a body (True)."""
    size = 0
    while True:
        message = await receive()
        if message["type"] in _DISCONNECTED:
            return False
        if message["type"] == "http.request":
            size += len(message.get("body", b""))
            if size > max_bytes:
                return True
        await messages.put(message)


def _declared_bytes(scope: Scope) -> int:
    length = header(scope, b"content-length")
    return int(length) if length is not None and length.isdigit() else 0


def header(scope: Scope, name: bytes) -> str | None:
    """Return the first header of a name in lower case."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), None)


async def _refuse(receive: Receive, send: Send) -> None:
    """Respond with 413 and read the remaining request, because clients ignore responses on closed connections."""
    text = b'{"detail": "the request is too large"}'
    await send(_start(413, text))
    await send({"type": "http.response.body", "body": text, "more_body": True})
    remaining = _LINGERING_BYTES
    while remaining > 0:
        message = await receive()
        if message["type"] in _DISCONNECTED or not message.get("more_body"):
            break
        remaining -= len(message.get("body", b""))
    await send({"type": "http.response.body", "body": b""})


def _start(status: int, text: bytes) -> Message:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(text)),
        (b"connection", b"close"),
    ]
    return {"type": "http.response.start", "status": status, "headers": headers}


class CheckHeaders:
    """An ASGI application that refuses requests and WebSockets by their headers (`refusal`)."""

    def __init__(self, app: Application, address: str) -> None:
        """Wrap an application that listens on an IP address."""
        self._app = app
        self._address = address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a connection."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        refused = refusal(
            ((name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]), self._address
        )
        if refused is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close"})  # before its acceptance: answered with 403
        else:
            text = json.dumps({"detail": refused[1]}).encode()
            await send(_start(refused[0], text))
            await send({"type": "http.response.body", "body": text})
