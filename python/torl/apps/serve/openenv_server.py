"""The pool as an environment server of OpenEnv: `python -m torl.sandbox openenv`.

Its routes are those of the library's own server (`/ws`, `/reset`, `/step`, `/state`, `/schema`, `/health`), and the
actions and observations are those of its coding environment, whose client works unchanged.
"""

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from openenv.core.env_server import create_fastapi_app
from openenv.core.env_server.types import ConcurrencyConfig

from torl.apps.serve.admission import Admission, OverloadedError
from torl.apps.serve.disconnects import CancelOnDisconnect
from torl.apps.serve.metrics import CONTENT_TYPE
from torl.apps.serve.openenv_environment import CodeAction, CodeObservation, PythonEnvironment, SharedState
from torl.apps.serve.sessions import SessionStore
from torl.apps.serve.settings import PoolSettings, ServerSettings, SessionSettings, bound_socket
from torl.apps.serve.uvicorn_server import listen
from torl.sandbox.pool import SandboxPool


def application(pool: SandboxPool, settings: ServerSettings, sessions: SessionSettings) -> FastAPI:
    """The door as an application of FastAPI's."""
    shelf = SharedState(
        pool, SessionStore(sessions), Admission(settings.max_pending_requests, settings.max_pending_mib << 20)
    )
    most = ConcurrencyConfig(max_concurrent_envs=sessions.max_sessions, session_timeout=sessions.session_ttl_seconds)
    app = create_fastapi_app(lambda: PythonEnvironment(shelf), CodeAction, CodeObservation, concurrency_config=most)

    @app.exception_handler(OverloadedError)
    async def refuse(_: Request, overload: OverloadedError) -> Response:
        return JSONResponse({"detail": str(overload)}, 429, {"Retry-After": "1"})

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        return Response(shelf.metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    return app


def serve(pool: PoolSettings, settings: ServerSettings, sessions: SessionSettings) -> None:
    """Listen until SIGTERM or SIGINT.

    Raises:
        SandboxError: the pool does not start.
        OSError: the address cannot be had.
    """
    with bound_socket(settings.host, settings.port, settings.idle_timeout_seconds) as listener, pool.open() as opened:
        app = application(opened, settings, sessions)
        listen(CancelOnDisconnect(app, settings.body_mib << 20), settings, listener)
