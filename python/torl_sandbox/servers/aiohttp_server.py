"""The HTTP base of aiohttp servers, with limits on connections, idle times, headers and the origin of requests."""

import asyncio
import signal
import socket

import uvloop
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from torl_sandbox.servers.http import BoundedConnections, log_no_malformed_requests, refusal, server_runner
from torl_sandbox.servers.settings import ServerSettings, address_of

_BACKLOG = 1024  # connections waiting to be accepted
_LINGERING_SECONDS = 10.0  # for the remainder of a refused request
_MAX_HEADERS, _MAX_HEADER = 64, 4096


def listen(app: web.Application, settings: ServerSettings, listener: socket.socket) -> None:
    """Serve an application until SIGTERM or SIGINT, and print its address.

    Raises:
        OSError: The socket cannot listen.
    """
    busy: set[object] = set()
    app.middlewares.append(_guard(listener.getsockname()[0], busy))
    app.middlewares.append(_send_with_timeout(settings.idle_timeout_seconds))
    log_no_malformed_requests()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(app, settings, listener, busy))


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


def _guard(address: str, busy: set[object]) -> Middleware:
    """Return a middleware that refuses requests by their headers, and adds connections with a request to `busy`."""

    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        refused = refusal(request.headers.items(), address)
        if refused is not None:
            return web.json_response({"detail": refused[1]}, status=refused[0])
        busy.add(request.protocol)
        try:
            return await handler(request)
        finally:
            busy.discard(request.protocol)

    return answer


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


async def _serve(app: web.Application, settings: ServerSettings, listener: socket.socket, busy: set[object]) -> None:
    runner = server_runner(
        app,
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
        await _BoundedSite(runner, listener, settings.max_connections(), busy).start()
        print(f"listening on {address_of(listener)}", flush=True)
        await stopped.wait()
    finally:
        await runner.cleanup()


class _BoundedSite(web.BaseSite):
    """A site with a maximum number of connections. Beyond it, the oldest idle connection is closed."""

    def __init__(self, runner: web.AppRunner, listener: socket.socket, max_connections: int, busy: set[object]) -> None:
        super().__init__(runner, backlog=_BACKLOG)
        self._listener = listener
        self._max_connections = max_connections
        self._busy = busy

    @property
    def name(self) -> str:
        return address_of(self._listener)

    async def start(self) -> None:
        await super().start()
        assert self._runner.server is not None
        connections = BoundedConnections(self._runner.server, self._max_connections, self._busy)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(connections, sock=self._listener, backlog=self._backlog)
