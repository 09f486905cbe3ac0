"""ASGI applications around a server's own: checks of headers, limits on bodies, cancellation, and an orderly end."""

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
ErrorBody = Callable[[int, str], object]
"""Returns the JSON of an error from its status and its text."""

_DISCONNECTED = ("http.disconnect", "websocket.disconnect")
_RESTART: Message = {"type": "websocket.disconnect", "code": 1012}
_MAX_QUEUED = 4  # messages read ahead of the application
_LINGERING_SECONDS, _LINGERING_BYTES = 10.0, 64 << 20  # for the remainder of a request that was answered


def detail(status: int, text: str) -> object:
    """Return the JSON of an error as FastAPI does."""
    return {"detail": text}


class CancelOnDisconnect:
    """An ASGI application that cancels the work for clients that disconnect, and refuses large bodies with 413.

    A server reports a disconnect in a message, which a busy application does not receive. A response ends when the
    client has received it, and after its request: clients ignore responses on connections that close while they send.
    """

    def __init__(self, app: Application, max_bytes: int, error_body: ErrorBody = detail) -> None:
        """Wrap an application whose requests have bodies of at most `max_bytes`."""
        self._app = app
        self._max_bytes = max_bytes
        self._error_body = error_body
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
        if scope["type"] == "websocket":
            exchange = _Exchange(receive, send, self._max_bytes)
            await exchange.run(self._app(scope, lambda: self._next_message(exchange.messages), send))
        elif scope.get("method") != "POST":
            await self._app(scope, receive, send)
        else:
            exchange = _Exchange(receive, send, self._max_bytes)
            if not await exchange.run(self._app(scope, exchange.messages.get, exchange.send)):
                content = self._error_body(413, f"the request has more than {self._max_bytes} bytes")
                await exchange.run(refuse(exchange.send, 413, content))

    async def _next_message(self, messages: "asyncio.Queue[Message]") -> Message:
        if self._ending:
            return _RESTART
        self._idle.add(messages)
        try:
            return await messages.get()
        finally:
            self._idle.discard(messages)


class _Exchange:
    """A POST request with its response, or a WebSocket. Messages are read ahead of the application."""

    def __init__(self, receive: Receive, send: Send, max_bytes: int) -> None:
        self.messages: asyncio.Queue[Message] = asyncio.Queue(_MAX_QUEUED)
        self._receive = receive
        self._send = send
        self._max_bytes = max_bytes
        self._size = 0
        self._complete = self._answered = False

    async def run(self, application: Awaitable[None]) -> bool:
        """Run an application until the client disconnects. Return False if its request was too large."""
        task = asyncio.current_task()
        assert task is not None
        self._stopped = self._too_large = False
        forwarding = asyncio.ensure_future(self._forward(task))
        try:
            await application
        except (Exception, asyncio.CancelledError):
            # The application cannot send its error to a client that disconnected.
            if not self._stopped:
                raise
        finally:
            forwarding.cancel()
        if self._stopped and task.uncancel() > 0:
            raise asyncio.CancelledError
        return not self._too_large

    async def _forward(self, work: "asyncio.Task[Any]") -> None:
        """Forward messages. Cancel the work when the client disconnects or exceeds the limit on a body."""
        while True:
            message = await self._receive()
            if message["type"] == "http.request":
                self._size += len(message.get("body", b""))
                self._too_large = self._size > self._max_bytes and not self._answered
                self._complete = not message.get("more_body")
            if self._too_large or message["type"] in _DISCONNECTED:
                self._stopped = self._answered = True
                work.cancel()
                return
            await self.messages.put(message)

    async def send(self, message: Message) -> None:
        """Send a part of the response. The last one is followed by an empty one, which waits for the others."""
        self._answered = True
        if message["type"] == "http.response.body" and not message.get("more_body"):
            await self._send({**message, "more_body": True})
            with suppress(TimeoutError):
                async with asyncio.timeout(_LINGERING_SECONDS):
                    while not self._complete and self._size < _LINGERING_BYTES:
                        await self.messages.get()
            message = {"type": "http.response.body"}
        await self._send(message)


async def refuse(send: Send, status: int, content: object) -> None:
    """Send an error as JSON, after which the connection closes."""
    text = json.dumps(content).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(text)),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})


def header(scope: Scope, name: bytes) -> str | None:
    """Return the first header of a name in lower case."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), None)


class CheckHeaders:
    """An ASGI application that refuses requests and WebSockets by their headers (`refusal`)."""

    def __init__(self, app: Application, address: str, error_body: ErrorBody = detail) -> None:
        """Wrap an application that listens on an IP address."""
        self._app = app
        self._address = address
        self._error_body = error_body

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
            await refuse(send, refused[0], self._error_body(*refused))
