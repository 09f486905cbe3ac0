"""The HTTP base of ASGI servers, with limits on connections and idle times and cancellation on disconnects."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from torl.apps.serve.settings import ServerSettings, address_of
from torl.errors import SandboxError

_BACKLOG = 1024  # connections waiting to be accepted
_NOTHING = object()

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

_DISCONNECTED = ("http.disconnect", "websocket.disconnect")
_MAX_QUEUED = 4  # messages read ahead of the application
_LINGERING_BYTES = 64 << 20  # maximum size of a refused request that is read and dropped


def listen(app: Any, settings: ServerSettings, listener: socket.socket, path: str = "") -> None:
    """Serve an application until SIGTERM or SIGINT, and print its address followed by `path`."""
    config = uvicorn.Config(
        app,
        http=_bounded_protocol(settings.idle_timeout_seconds, settings.max_connections()),
        log_level="warning",
        access_log=False,
        backlog=_BACKLOG,
        timeout_keep_alive=int(settings.idle_timeout_seconds),
        timeout_graceful_shutdown=int(settings.grace_period_seconds),
        ws_max_size=settings.body_mib << 20,
    )
    _Server(config, f"{address_of(listener)}{path}").run(sockets=[listener])


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, address: str) -> None:
        super().__init__(config)
        self._address = address

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.should_exit:
            raise SandboxError("the server did not start: see the log above")
        print(f"listening on {self._address}", flush=True)


def _bounded_protocol(seconds: float, max_connections: int) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol with a limit on connections and timeouts.

    Connections above the limit are closed immediately. Clients are disconnected if the remainder of a request, or the
    reception of a response, takes longer than `seconds` (twice as long after another request). uvicorn waits for both
    without a limit.
    """

    class Bounded(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        # The request that was incomplete at the last poll: the current one, or the one after it.
        _incomplete: Any = None
        _polling: asyncio.TimerHandle | None = None
        _writing: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            if len(self.connections) > max_connections:
                transport.abort()
                return
            self._polling = self.loop.call_later(seconds, self._poll)

        def handle_websocket_upgrade(self, *event: Any) -> None:
            self._cancel(self._polling)  # WebSockets have their own pings
            super().handle_websocket_upgrade(*event)

        def _poll(self) -> None:
            cycle = self.cycle
            if cycle is not None and not cycle.more_body and not cycle.response_complete:
                self._incomplete = _NOTHING
            elif cycle is self._incomplete:
                self.transport.abort()
                return
            else:
                self._incomplete = cycle
            self._polling = self.loop.call_later(seconds, self._poll)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._writing = self.loop.call_later(seconds, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            self._cancel(self._writing)

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self._cancel(self._polling)
            self._cancel(self._writing)

        @staticmethod
        def _cancel(timer: asyncio.TimerHandle | None) -> None:
            if timer is not None:
                timer.cancel()

    return Bounded


class CancelOnDisconnect:
    """An ASGI application that cancels the work for clients that disconnect, and refuses large bodies with 413.

    A server reports a disconnect in a message, which a busy application does not receive.
    """

    def __init__(self, app: Application, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Handle a connection."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] == "http" and _declared_bytes(scope) > self._max_bytes:
            await _refuse(receive, send)
            return
        messages: asyncio.Queue[Message] = asyncio.Queue(_MAX_QUEUED)
        work = asyncio.ensure_future(self._app(scope, messages.get, send))
        forwarding = asyncio.ensure_future(_forward(receive, messages, self._max_bytes))
        await asyncio.wait((work, forwarding), return_when=asyncio.FIRST_COMPLETED)
        unanswered = not work.done() and not forwarding.cancelled() and forwarding.result()
        for task in (forwarding, work):
            task.cancel()
        with suppress(asyncio.CancelledError):
            await work
        if unanswered:
            await _refuse(receive, send)


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


def _declared_bytes(scope: MutableMapping[str, Any]) -> int:
    lengths = [value for name, value in scope["headers"] if name == b"content-length"]
    return int(lengths[0]) if lengths and lengths[0].isdigit() else 0


async def _refuse(receive: Receive, send: Send) -> None:
    """Respond with 413 and read the remaining request, because clients ignore responses on closed connections."""
    text = b'{"detail": "the request is too large"}'
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(text)),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": text, "more_body": True})
    remaining = _LINGERING_BYTES
    while remaining > 0:
        message = await receive()
        if message["type"] in _DISCONNECTED or not message.get("more_body"):
            break
        remaining -= len(message.get("body", b""))
    await send({"type": "http.response.body", "body": b""})
