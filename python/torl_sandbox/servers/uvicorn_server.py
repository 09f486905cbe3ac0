"""The HTTP base of all servers: uvicorn, with limits on connections, times and sizes, and an orderly end."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.auto import AutoWebSocketsProtocol

from torl_sandbox.servers.asgi import Application, CancelOnDisconnect, CheckHeaders, ErrorBody, detail
from torl_sandbox.servers.settings import ServerSettings, address_of

_BACKLOG = 1024  # connections waiting to be accepted
_MAX_HEAD = 64 << 10  # bytes that are neither a whole head nor a body
_MAX_PIPELINED = 32  # requests of a connection that wait for the response to another
_NOTHING = object()


def listen(
    app: Application,
    settings: ServerSettings,
    listener: socket.socket,
    path: str = "",
    on_end: Callable[[], object] = lambda: None,
    *,
    around: AbstractAsyncContextManager[object] | None = None,
) -> None:
    """Serve an application until SIGTERM or SIGINT, and print its address followed by `path`.

    Args:
        app: Application.
        settings: Address and limits.
        listener: Bound socket.
        path: Path and fragment in the printed address.
        on_end: Callback at the signal, which ends responses that would not end otherwise.
        around: Context that is entered before the start, and left after the end.
    """
    server = Server(
        app,
        listener,
        max_body_bytes=settings.body_mib << 20,
        max_connections=settings.max_connections(),
        idle_seconds=settings.idle_timeout_seconds,
        grace_seconds=settings.grace_period_seconds,
        on_end=on_end,
    )

    async def serve() -> None:
        async with around or contextlib.nullcontext(), server.running():
            print(f"listening on {address_of(listener)}{path}", flush=True)
            await server.main_loop()

    with server.capture_signals(), asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
        runner.run(serve())


class Server(uvicorn.Server):
    """A server of an ASGI application.

    Web pages and compressed bodies are refused. Requests of clients that disconnect are cancelled.
    """

    def __init__(
        self,
        app: Application,
        listener: socket.socket,
        *,
        max_body_bytes: int,
        max_connections: int,
        idle_seconds: float,
        grace_seconds: float,
        error_body: ErrorBody = detail,
        on_end: Callable[[], object] = lambda: None,
    ) -> None:
        """Set the limits.

        Args:
            app: Application.
            listener: Bound socket.
            max_body_bytes: Maximum size of a request's body.
            max_connections: Maximum number of open connections. Beyond it, the oldest idle connection is closed.
            idle_seconds: Idle timeout of a connection.
            grace_seconds: Grace period for pending requests at the end. Then their connections are closed.
            error_body: Returns the JSON of a refusal.
            on_end: Callback at the end, which ends responses that would not end otherwise.
        """
        checked = CheckHeaders(app, listener.getsockname()[0], error_body)
        self._app = CancelOnDisconnect(checked, max_body_bytes, error_body)
        self._listener = listener
        self._grace_seconds = grace_seconds
        self._on_end = on_end
        logging.getLogger("uvicorn.error").addFilter(_is_server_problem)
        super().__init__(
            uvicorn.Config(
                self._app,
                http=_bounded_protocol(idle_seconds, max_connections),
                ws=_websocket_protocol(),
                log_config=None,
                log_level="error",  # warnings are about malformed requests, with which clients could fill the log
                access_log=False,
                backlog=_BACKLOG,
                timeout_keep_alive=int(idle_seconds),
                timeout_graceful_shutdown=int(grace_seconds) + 1,
                ws_max_size=max_body_bytes,
                ws_per_message_deflate=False,
            )
        )

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve during the block."""
        self.config.load()
        self.lifespan = self.config.lifespan_class(self.config)
        await self.startup([self._listener])
        try:
            yield
        finally:
            self._app.end()
            self._on_end()
            abort = asyncio.get_running_loop().call_later(self._grace_seconds, self._abort)
            await self.shutdown([self._listener])
            abort.cancel()

    def _abort(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End the main loop at SIGTERM or SIGINT. uvicorn repeats the signal afterwards."""
        with super().capture_signals():
            yield
            self._captured_signals.clear()


def _is_server_problem(record: logging.LogRecord) -> bool:
    """Whether a log record is not about text that is not UTF-8. Clients could fill the log with those."""
    return not (record.exc_info and isinstance(record.exc_info[1], UnicodeDecodeError))


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
    """Return uvicorn's protocol with limits on connections, times, heads and pipelined requests.

    Beyond the limit, the oldest idle connection is closed. Clients are disconnected if the remainder of a request, or
    the reception of a response, takes longer than `seconds` (twice as long after another request). uvicorn waits for
    both without a limit, and stores heads of any length and any number of pipelined requests.
    """

    by_age: dict[Any, None] = {}  # open HTTP connections

    class Bounded(HttpToolsProtocol):
        # The request that was incomplete at the last poll: the current one, or the one after it.
        _incomplete: Any = None
        _polling: asyncio.TimerHandle | None = None
        _writing: asyncio.TimerHandle | None = None
        _head_bytes = 0  # since the last head, part of a body, or end of a request

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > max_connections:
                oldest = next((each for each in by_age if each.idle), self)
                oldest.transport.abort()
                if oldest is self:
                    return
            by_age[self] = None
            self._polling = self.loop.call_later(seconds, self._poll)

        def data_received(self, data: bytes) -> None:
            self._head_bytes += len(data)
            super().data_received(data)
            if self._head_bytes > _MAX_HEAD and not self.transport.is_closing():
                if self.idle:
                    self.send_400_response(f"The head of a request has at most {_MAX_HEAD} bytes.")
                else:
                    self.transport.abort()

        def on_headers_complete(self) -> None:
            if len(self.pipeline) >= _MAX_PIPELINED:
                self.transport.abort()
                raise ConnectionAbortedError  # ends the parser
            self._head_bytes = 0
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            self._head_bytes = 0
            super().on_body(body)

        def on_message_complete(self) -> None:
            self._head_bytes = 0
            super().on_message_complete()

        def handle_websocket_upgrade(self) -> None:
            self._cancel(self._polling)  # WebSockets have their own pings
            by_age.pop(self, None)
            super().handle_websocket_upgrade()

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
