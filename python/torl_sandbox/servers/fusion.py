"""The server of SandboxFusion's HTTP interface: `python -m torl_sandbox serve`.

    POST /run_code       run a program in a fresh state
    POST /run_jupyter    run the cells of a notebook, which share their state
    POST /submit         test a completion with the tests of the problem in the request
    GET  /v1/ping        "pong"; 503 after a failure of the pool
    GET  /metrics        metrics for Prometheus

Runs of clients that disconnect are cancelled. After SIGTERM, pending requests are answered before the server exits.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router

from torl_sandbox.errors import SandboxError
from torl_sandbox.pool import SandboxPool
from torl_sandbox.servers.admission import CONTENT_TYPE, Admission, ServerMetrics
from torl_sandbox.servers.asgi import Application
from torl_sandbox.servers.fusion_api import (
    Json,
    RunCodeRequest,
    RunJupyterRequest,
    run_code,
    run_jupyter,
    sandbox_error,
)
from torl_sandbox.servers.json_api import JsonApi, json_response
from torl_sandbox.servers.settings import PoolSettings, ServerSettings, bound_socket
from torl_sandbox.servers.submissions import SubmitRequest, submit
from torl_sandbox.servers.uvicorn_server import listen

_Request = TypeVar("_Request", bound=BaseModel)
_Work = Callable[[SandboxPool, _Request], Awaitable[Json]]


class FusionServer:
    """The request handlers, which run code in a pool."""

    def __init__(self, pool: SandboxPool, settings: ServerSettings) -> None:
        self._pool = pool
        admission = Admission(settings.max_pending_requests, settings.max_pending_mib << 20)
        self._metrics = ServerMetrics(pool, admission)
        self._api = JsonApi(settings, admission, self._metrics.count_response)
        self._failure: str | None = None

    def handler(self, model: type[_Request], work: _Work[_Request]) -> Application:
        """Return a handler that parses requests as `model` and answers them with `work`."""

        async def answer(body: bytes) -> Json:
            try:
                return await work(self._pool, model.model_validate_json(body))
            except SandboxError as error:
                self._failure = str(error)
                return sandbox_error(self._failure)

        return self._api.handler(answer)

    async def ping(self, _: Request) -> Response:
        """Answer whether the pool works, as of the last request."""
        return json_response(200, "pong") if self._failure is None else json_response(503, {"detail": self._failure})

    async def metrics(self, _: Request) -> Response:
        """Answer with metrics for Prometheus."""
        return Response(self._metrics.text(), headers={"Content-Type": CONTENT_TYPE})


def application(pool: SandboxPool, settings: ServerSettings) -> Application:
    """Build the ASGI application."""
    server = FusionServer(pool, settings)
    post = ["POST"]
    return Router(
        [
            Route("/run_code", server.handler(RunCodeRequest, run_code), methods=post),
            Route("/run_jupyter", server.handler(RunJupyterRequest, run_jupyter), methods=post),
            Route("/submit", server.handler(SubmitRequest, submit), methods=post),
            Route("/v1/ping", server.ping),
            Route("/metrics", server.metrics),
        ]
    )


def serve(pool: PoolSettings, settings: ServerSettings) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        SandboxError: The pool does not start.
        OSError: The address is unavailable.
    """
    with bound_socket(settings.host, settings.port, settings.idle_timeout_seconds) as listener, pool.open() as opened:
        listen(application(opened, settings), settings, listener)
