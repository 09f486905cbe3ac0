"""The server of SandboxFusion's HTTP interface: `torl sandbox serve`.

    POST /run_code       run a program in a fresh state
    POST /run_jupyter    run the cells of a notebook, which share their state
    POST /submit         test a completion with the tests of the problem in the request
    GET  /v1/ping        "pong"; 503 after a failure of the pool
    GET  /metrics        metrics for Prometheus

Runs of clients that disconnect are cancelled. After SIGTERM, pending requests are answered before the server exits.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TypeVar

from aiohttp import web
from pydantic import BaseModel, ValidationError

from torl.apps.serve.admission import CONTENT_TYPE, Admission, OverloadedError, ServerMetrics
from torl.apps.serve.aiohttp_server import listen, send
from torl.apps.serve.fusion_api import Json, RunCodeRequest, RunJupyterRequest, run_code, run_jupyter, sandbox_error
from torl.apps.serve.settings import PoolSettings, ServerSettings, bound_socket
from torl.apps.serve.submissions import SubmitRequest, submit
from torl.errors import SandboxError
from torl.sandbox.pool import SandboxPool

_Request = TypeVar("_Request", bound=BaseModel)
_Work = Callable[[SandboxPool, _Request], Awaitable[Json]]

_JSON = "application/json"


class FusionServer:
    """The request handlers, which run code in a pool."""

    def __init__(self, pool: SandboxPool, settings: ServerSettings) -> None:
        self._pool = pool
        self._max_bytes = settings.body_mib << 20
        self._timeout_seconds = settings.idle_timeout_seconds
        self._admission = Admission(settings.max_pending_requests, settings.max_pending_mib << 20)
        self._metrics = ServerMetrics(pool, self._admission)
        self._failure: str | None = None

    def handler(self, model: type[_Request], work: _Work[_Request]) -> Callable[[web.Request], Awaitable[web.Response]]:
        """Return a handler that parses requests as `model` and answers them with `work`."""

        async def handle(request: web.Request) -> web.Response:
            try:
                size = self._declared_size(request)
                with self._admission.admit(size):
                    response = _answer(200, await self._answer(request, model, work))
                    await self._send(request, response)  # the request is pending until the response was sent
                    return response
            except _RefusedError as refusal:
                return self._refuse(request, refusal.status, refusal.detail)
            except OverloadedError as overload:
                return self._refuse(request, 429, str(overload))

        return handle

    def _declared_size(self, request: web.Request) -> int:
        if request.content_type != _JSON:
            raise _RefusedError(415, f"the content type must be {_JSON}, got {request.content_type}")
        size = self._max_bytes if request.content_length is None else request.content_length
        if size > self._max_bytes:
            raise _RefusedError(413, f"the request has {size} bytes; the maximum is {self._max_bytes}")
        return size

    async def _answer(self, request: web.Request, model: type[_Request], work: _Work[_Request]) -> Json:
        try:
            async with asyncio.timeout(self._timeout_seconds):
                body = await request.read()
        except TimeoutError as error:
            raise _RefusedError(408, f"the request did not arrive within {self._timeout_seconds:g} s") from error
        try:
            return await work(self._pool, model.model_validate_json(body))
        except ValidationError as error:
            details = error.errors(include_url=False, include_context=False, include_input=False)
            raise _RefusedError(422, details) from error
        except ValueError as error:  # invalid files or an invalid problem
            raise _RefusedError(422, str(error)) from error
        except SandboxError as error:
            self._failure = str(error)
            return sandbox_error(self._failure)

    async def _send(self, request: web.Request, response: web.Response) -> None:
        self._metrics.count_response(request.path, response.status)
        await send(request, response, self._timeout_seconds)

    def _refuse(self, request: web.Request, status: int, detail: object) -> web.Response:
        self._metrics.count_response(request.path, status)
        return _answer(status, {"detail": detail})

    async def ping(self, _: web.Request) -> web.Response:
        """Answer whether the pool works, as of the last request."""
        return _answer(200, "pong") if self._failure is None else _answer(503, {"detail": self._failure})

    async def metrics(self, _: web.Request) -> web.Response:
        """Answer with metrics for Prometheus."""
        return web.Response(body=self._metrics.text(), headers={"Content-Type": CONTENT_TYPE})


class _RefusedError(Exception):
    """A request that is answered with an error in the format of FastAPI."""

    def __init__(self, status: int, detail: object) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


def _answer(status: int, content: object) -> web.Response:
    headers = {"Retry-After": "1"} if status == 429 else None
    return web.Response(status=status, body=json.dumps(content).encode(), content_type=_JSON, headers=headers)


def application(pool: SandboxPool, settings: ServerSettings) -> web.Application:
    """Build the aiohttp application."""
    server = FusionServer(pool, settings)
    app = web.Application(client_max_size=settings.body_mib << 20)
    app.router.add_post("/run_code", server.handler(RunCodeRequest, run_code))
    app.router.add_post("/run_jupyter", server.handler(RunJupyterRequest, run_jupyter))
    app.router.add_post("/submit", server.handler(SubmitRequest, submit))
    app.router.add_get("/v1/ping", server.ping)
    app.router.add_get("/metrics", server.metrics)
    return app


def serve(pool: PoolSettings, settings: ServerSettings) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        SandboxError: The pool does not start.
        OSError: The address is unavailable.
    """
    with bound_socket(settings.host, settings.port, settings.idle_timeout_seconds) as listener, pool.open() as opened:
        listen(application(opened, settings), settings, listener)
