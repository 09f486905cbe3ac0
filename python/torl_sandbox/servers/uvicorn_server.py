"""The HTTP base of ASGI servers, with limits on connections and idle times, and a grace period at the end."""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol
from uvicorn.protocols.websockets.auto import AutoWebSocketsProtocol

from torl_sandbox.errors import SandboxError
from torl_sandbox.servers.asgi import Application, CancelOnDisconnect, CheckHeaders
from torl_sandbox.servers.settings import ServerSettings, address_of

_BACKLOG = 1024  # connections waiting to be accepted
_NOTHING = object()


def listen(
    app: Application,
    settings: ServerSettings,
    listener: socket.socket,
    path: str = "",
    on_end: Callable[[], object] = lambda: None,
) -> None:
    """Serve an application until SIGTERM or SIGINT, and print its address followed by `path`.

    Web pages and compressed bodies are refused. Requests of clients that disconnect are cancelled.

    Args:
        app: Application.
        settings: Address and limits.
        listener: Bound socket.
        path: Path and fragment in the printed address.
        on_end: Callback at the signal, which ends responses that would not end otherwise.
    """
    logging.getLogger("uvicorn.error").addFilter(_is_server_problem)
    cancelled = CancelOnDisconnect(app, settings.body_mib << 20)
    config = uvicorn.Config(
        CheckHeaders(cancelled, listener.getsockname()[0]),
        http=_bounded_protocol(settings.idle_timeout_seconds, settings.max_connections()),
        ws=_websocket_protocol(),
        log_level="warning",
        access_log=False,
        backlog=_BACKLOG,
        timeout_keep_alive=int(settings.idle_timeout_seconds),
        timeout_graceful_shutdown=int(settings.grace_period_seconds),
        ws_max_size=settings.body_mib << 20,
        ws_per_message_deflate=False,
    )
    _Server(config, cancelled, f"{address_of(listener)}{path}", on_end).run(sockets=[listener])


def _is_server_problem(record: logging.LogRecord) -> bool:
    """Whether a log record is not about text that is not UTF-8. Clients could fill the log with those."""
    return not (record.exc_info and isinstance(record.exc_info[1], UnicodeDecodeError))


class _Server(uvicorn.Server):
    def __init__(
        self, config: uvicorn.Config, app: CancelOnDisconnect, address: str, on_end: Callable[[], object]
    ) -> None:
        super().__init__(config)
        self._app = app
        self._address = address
        self._on_end = on_end

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.should_exit:
            raise SandboxError("the server did not start: see the log above")
        print(f"listening on {self._address}", flush=True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.end()
        self._on_end()
        await super().shutdown(sockets)


def _websocket_protocol() -> Any:
    """Return uvicorn's protocol of WebSockets, or "none" without a library of them.

    uvicorn ends them at once. Here the application ends them, when it has answered their last message.
    """
    if AutoWebSocketsProtocol is None:
        return "none"

    class Patient(AutoWebSocketsProtocol):  # type: ignore[misc, valid-type]
        def shutdown(self) -> None:
            pass

    return Patient


def _bounded_protocol(seconds: float, max_connections: int) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol with a limit on connections and timeouts.

    Beyond the limit, the oldest idle connection is closed. Clients are disconnected if the remainder of a request, or
    the reception of a response, takes longer than `seconds` (twice as long after another request). uvicorn waits for
    both without a limit.
    """

    by_age: dict[Any, None] = {}  # open HTTP connections

    class Bounded(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        # The request that was incomplete at the last poll: the current one, or the one after it.
        _incomplete: Any = None
        _polling: asyncio.TimerHandle | None = None
        _writing: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            if len(self.connections) > max_connections:
                oldest = next((each for each in by_age if each.idle), self)
                oldest.transport.abort()
                if oldest is self:
                    return
            by_age[self] = None
            self._polling = self.loop.call_later(seconds, self._poll)

        def handle_websocket_upgrade(self, *event: Any) -> None:
            self._cancel(self._polling)  # WebSockets have their own pings
            by_age.pop(self, None)
            super().handle_websocket_upgrade(*event)

        @property
        def idle(self) -> bool:
            return not self.transport.is_closing() and (self.cycle is None or self.cycle.response_complete)

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
            by_age.pop(self, None)
            self._cancel(self._polling)
            self._cancel(self._writing)

        @staticmethod
        def _cancel(timer: asyncio.TimerHandle | None) -> None:
            if timer is not None:
                timer.cancel()

    return Bounded
