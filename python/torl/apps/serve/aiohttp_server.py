"""The HTTP base of aiohttp servers, with limits on connections, idle times and headers."""

import asyncio
import logging
import signal
import socket
from typing import cast

import uvloop
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.log import server_logger
from aiohttp.typedefs import Handler, Middleware

from torl.apps.serve.settings import ServerSettings, address_of

_BACKLOG = 1024  # connections waiting to be accepted
_LINGERING_SECONDS = 10.0  # for the remainder of a refused request
_MAX_HEADERS, _MAX_HEADER = 64, 4096


def listen(app: web.Application, settings: ServerSettings, listener: socket.socket) -> None:
    """Serve an application until SIGTERM or SIGINT, and print its address.

    Raises:
        OSError: The socket cannot listen.
    """
    app.middlewares.append(_send_with_timeout(settings.idle_timeout_seconds))
    server_logger.addFilter(_is_server_problem)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(app, settings, listener))


async def send(request: web.Request, response: web.StreamResponse, seconds: float) -> None:
    """Send a response unless it was sent, and disconnect clients that do not receive it within the timeout."""
    if response.prepared:
        return
    try:
        async with asyncio.timeout(seconds):
            await response.prepare(request)
            await response.write_eof()
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()


def _send_with_timeout(seconds: float) -> Middleware:
    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            response = await handler(request)
        except web.HTTPException as refusal:
            await send(request, refusal, seconds)
            raise
        await send(request, response, seconds)
        return response

    return answer


def _is_server_problem(record: logging.LogRecord) -> bool:
    """Whether a log record is not about a malformed request. Those would fill the log."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


async def _serve(app: web.Application, settings: ServerSettings, listener: socket.socket) -> None:
    runner = web.AppRunner(
        app,
        access_log=None,
        handler_cancellation=True,  # cancels the run of a client that disconnects
        keepalive_timeout=settings.idle_timeout_seconds,  # also the timeout of request headers
        lingering_time=min(settings.idle_timeout_seconds, _LINGERING_SECONDS),
        shutdown_timeout=settings.grace_period_seconds / 2,  # aiohttp waits twice
        max_headers=_MAX_HEADERS,
        max_field_size=_MAX_HEADER,
    )
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await runner.setup()
    try:
        await _BoundedSite(runner, listener, settings.max_connections()).start()
        print(f"listening on {address_of(listener)}", flush=True)
        await stopped.wait()
    finally:
        await runner.cleanup()


class _BoundedSite(web.BaseSite):
    """A site that closes connections above a maximum immediately."""

    def __init__(self, runner: web.AppRunner, listener: socket.socket, max_connections: int) -> None:
        super().__init__(runner, backlog=_BACKLOG)
        self._listener = listener
        self._max_connections = max_connections

    @property
    def name(self) -> str:
        return address_of(self._listener)

    async def start(self) -> None:
        await super().start()
        server = self._runner.server
        assert server is not None

        def connection() -> asyncio.BaseProtocol:
            return server() if len(server.connections) < self._max_connections else _Refusal()

        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(connection, sock=self._listener, backlog=self._backlog)


class _Refusal(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).abort()
