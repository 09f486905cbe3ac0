"""The pool behind SandboxFusion's HTTP interface: `python -m torl.sandbox serve`.

    POST /run_code       a program, in a fresh state
    POST /run_jupyter    the cells of a notebook, each with the state that those before it left
    POST /submit         a completion against the tests of a problem that comes with it
    GET  /v1/ping        "pong"; 503 when the pool has broken
    GET  /metrics        for Prometheus

A client that goes away takes its run with it. SIGTERM closes the door, and what is under way is answered first.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TypeVar

from aiohttp import web
from pydantic import BaseModel, ValidationError

from torl.apps.serve.admission import Admission, OverloadedError
from torl.apps.serve.aiohttp_server import listen, send
from torl.apps.serve.fusion_answers import Json, sandbox_error
from torl.apps.serve.fusion_requests import RunCodeRequest, RunJupyterRequest
from torl.apps.serve.fusion_runs import run_code, run_jupyter
from torl.apps.serve.metrics import CONTENT_TYPE, ServerMetrics
from torl.apps.serve.settings import PoolSettings, ServerSettings, bound_socket
from torl.apps.serve.submissions import SubmitRequest, submit
from torl.errors import SandboxError
from torl.sandbox.pool import SandboxPool

_Request = TypeVar("_Request", bound=BaseModel)
_Work = Callable[[SandboxPool, _Request], Awaitable[Json]]

_JSON = "application/json"


class FusionServer:
    """Answers requests from a pool."""

    def __init__(self, pool: SandboxPool, settings: ServerSettings) -> None:
        self._pool = pool
        self._max_bytes = settings.body_mib << 20
        self._idle_seconds = settings.idle_timeout_seconds
        self._admission = Admission(settings.max_pending_requests, settings.max_pending_mib << 20)
        self._metrics = ServerMetrics(pool, self._admission)
        self._broken: str | None = None

    def handler(self, model: type[_Request], work: _Work[_Request]) -> Callable[[web.Request], Awaitable[web.Response]]:
        """The handler of a path whose requests are read as `model` and answered by `work`."""

        async def handle(request: web.Request) -> web.Response:
            try:
                size = self._declared_size(request)
                with self._admission.admit(size):
                    response = _answer(200, await self._answer(request, model, work))
                    await self._send(request, response)  # it counts until it has been sent
                    return response
            except _RefusedError as refusal:
                return self._refuse(request, refusal.status, refusal.detail)
            except OverloadedError as overload:
                return self._refuse(request, 429, str(overload))

        return handle

    def _declared_size(self, request: web.Request) -> int:
        if request.content_type != _JSON:
            raise _RefusedError(415, f"send {_JSON}, not {request.content_type}")
        size = self._max_bytes if request.content_length is None else request.content_length
        if size > self._max_bytes:
            raise _RefusedError(413, f"a request may have {self._max_bytes} bytes, not {size}")
        return size

    async def _answer(self, request: web.Request, model: type[_Request], work: _Work[_Request]) -> Json:
        try:
            async with asyncio.timeout(self._idle_seconds):
                body = await request.read()
        except TimeoutError as error:
            raise _RefusedError(408, f"the request did not come within {self._idle_seconds:g} s") from error
        try:
            return await work(self._pool, model.model_validate_json(body))
        except ValidationError as error:
            wrong = error.errors(include_url=False, include_context=False, include_input=False)
            raise _RefusedError(422, wrong) from error
        except ValueError as error:  # files that cannot be, a problem that is none
            raise _RefusedError(422, str(error)) from error
        except SandboxError as error:
            self._broken = str(error)
            return sandbox_error(self._broken)

    async def _send(self, request: web.Request, response: web.Response) -> None:
        self._metrics.answered(request.path, response.status)
        await send(request, response, self._idle_seconds)

    def _refuse(self, request: web.Request, status: int, detail: object) -> web.Response:
        self._metrics.answered(request.path, status)
        return _answer(status, {"detail": detail})

    async def ping(self, _: web.Request) -> web.Response:
        """Whether the pool works, as far as is known."""
        return _answer(200, "pong") if self._broken is None else _answer(503, {"detail": self._broken})

    async def metrics(self, _: web.Request) -> web.Response:
        """For Prometheus."""
        return web.Response(body=self._metrics.text(), headers={"Content-Type": CONTENT_TYPE})


class _RefusedError(Exception):
    """A request that is answered with an error, in the form that FastAPI gives it."""

    def __init__(self, status: int, detail: object) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


def _answer(status: int, content: object) -> web.Response:
    headers = {"Retry-After": "1"} if status == 429 else None
    return web.Response(status=status, body=json.dumps(content).encode(), content_type=_JSON, headers=headers)


def application(pool: SandboxPool, settings: ServerSettings) -> web.Application:
    """The door as an application of aiohttp's."""
    door = FusionServer(pool, settings)
    app = web.Application(client_max_size=settings.body_mib << 20)
    app.router.add_post("/run_code", door.handler(RunCodeRequest, run_code))
    app.router.add_post("/run_jupyter", door.handler(RunJupyterRequest, run_jupyter))
    app.router.add_post("/submit", door.handler(SubmitRequest, submit))
    app.router.add_get("/v1/ping", door.ping)
    app.router.add_get("/metrics", door.metrics)
    return app


def serve(pool: PoolSettings, settings: ServerSettings) -> None:
    """Listen until SIGTERM or SIGINT.

    Raises:
        SandboxError: the pool does not start.
        OSError: the address cannot be had.
    """
    with bound_socket(settings.host, settings.port, settings.idle_timeout_seconds) as listener, pool.open() as opened:
        listen(application(opened, settings), settings, listener)
