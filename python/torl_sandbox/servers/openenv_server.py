"""The sandbox as an environment server of OpenEnv: `python -m torl_sandbox openenv`.

Its routes are the routes of the library's own server (`/ws`, `/reset`, `/step`, `/state`, `/schema`, `/health`).
Actions and observations are the ones of its coding environment, whose client works unchanged.
"""

import json
from typing import Any
from uuid import uuid4

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app
from openenv.core.env_server.types import ConcurrencyConfig

from torl_sandbox.options import CellOptions
from torl_sandbox.pool import SandboxPool
from torl_sandbox.servers.admission import CONTENT_TYPE, Admission, OverloadedError, ServerMetrics, bounded_wall_time
from torl_sandbox.servers.asgi import Application, Message, Receive, Scope, Send
from torl_sandbox.servers.fusion_api import command_result
from torl_sandbox.servers.sessions import SessionStore
from torl_sandbox.servers.settings import PoolSettings, ServerSettings, SessionSettings, bound_socket
from torl_sandbox.servers.uvicorn_server import listen

_TIMEOUT_EXIT_CODE = 124  # as of the shell command `timeout`


class CodeAction(Action):
    """Code to run."""

    code: str


class CodeObservation(Observation):
    """The output of the code, the value of its last statement, and its exit code."""

    stdout: str = ""
    stderr: str = ""
    exit_code: int = 0


class CodeState(State):
    """The state of an episode."""

    last_exit_code: int = 0


class SharedState:
    """The state that all environments of a server share."""

    def __init__(self, pool: SandboxPool, cpu_seconds: float, sessions: SessionStore, admission: Admission) -> None:
        self.pool = pool
        self.cpu_seconds = cpu_seconds
        self.sessions = sessions
        self.admission = admission
        self.metrics = ServerMetrics(pool, admission)


class PythonEnvironment(Environment[CodeAction, CodeObservation, CodeState]):
    """Episodes whose steps share their state. They have no reward and do not end on their own.

    `reset` starts a new episode. The first step does so as well, without `reset`.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, shared: SharedState) -> None:
        super().__init__()
        self._shared = shared
        self._state = CodeState()
        self._session: str | None = None

    async def reset_async(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> CodeObservation:
        """Start an episode with a random seed."""
        return self.reset(seed, episode_id)

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> CodeObservation:
        """Start an episode with a random seed. Its ID is a new UUID by default.

        Raises:
            ValueError: The seed is not an integer, or the ID is not a string.
        """
        if not isinstance(seed, int | None):
            raise ValueError(f"seed must be an integer, got {seed!r}")
        state = CodeState(episode_id=str(uuid4()) if episode_id is None else episode_id)
        self.close()
        self._session = self._shared.sessions.add(self._shared.pool.session(seed=seed or 0))
        self._state = state
        return CodeObservation()

    async def step_async(self, action: CodeAction, timeout_s: float | None = None, **_: Any) -> CodeObservation:
        """Run code. Its errors are part of the observation.

        Args:
            action: Code to run.
            timeout_s: CPU time in seconds, if less than the server's limit.

        Raises:
            OverloadedError: Too many steps are pending, or the step took too long because others do.
            RuntimeError: The session expired or was evicted.
            SandboxError: The host failed.
        """
        with self._shared.admission.admit(len(action.code)):
            if self._session is None:
                self.reset()
            session = self._shared.sessions.get(self._session or "")
            if session is None:
                raise RuntimeError("the session expired or was evicted; call reset to start a new one")
            seconds = self._shared.cpu_seconds if timeout_s is None else min(timeout_s, self._shared.cpu_seconds)
            options: CellOptions = {"value": True, "cpu_seconds": seconds}
            async with bounded_wall_time(seconds):
                outcome = await session.run_async(action.code, **options)
        self._shared.sessions.evict()
        self._shared.metrics.count_response("step", outcome.status.value)
        result = command_result(outcome)
        code = _TIMEOUT_EXIT_CODE if result["return_code"] is None else result["return_code"]
        self._state.step_count += 1
        self._state.last_exit_code = code
        value = "" if outcome.value is None else f"{outcome.value}\n"
        return CodeObservation(stdout=result["stdout"] + value, stderr=result["stderr"], exit_code=code)

    def step(self, action: CodeAction, timeout_s: float | None = None, **_: Any) -> CodeObservation:
        """Raise an error: the server calls `step_async`."""
        raise NotImplementedError("call step_async")

    @property
    def state(self) -> CodeState:
        """State of the episode."""
        return self._state

    def close(self) -> None:
        """Drop the session of the episode."""
        if self._session is not None:
            self._shared.sessions.drop(self._session)
            self._session = None


def application(pool: SandboxPool, cpu_seconds: float, settings: ServerSettings, sessions: SessionSettings) -> FastAPI:
    """Build the FastAPI application. Steps have at most `cpu_seconds` of CPU time."""
    admission = Admission(settings.max_pending_requests, settings.max_pending_mib << 20)
    shared = SharedState(pool, cpu_seconds, SessionStore(sessions), admission)
    concurrency = ConcurrencyConfig(
        max_concurrent_envs=sessions.max_sessions, session_timeout=sessions.session_ttl_seconds
    )
    app = create_fastapi_app(
        lambda: PythonEnvironment(shared), CodeAction, CodeObservation, concurrency_config=concurrency
    )

    @app.exception_handler(OverloadedError)
    async def refuse(_: Request, overload: OverloadedError) -> Response:
        return JSONResponse({"detail": str(overload)}, 429, {"Retry-After": "1"})

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        return Response(shared.metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    return app


class JsonMessages:
    """An ASGI application whose WebSockets receive JSON objects only.

    The library closes connections on other messages. An empty message instead is answered with its error.
    """

    def __init__(self, app: Application) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a connection."""

        async def checked() -> Message:
            message = await receive()
            if message["type"] == "websocket.receive" and not _is_object(message.get("text")):
                return {"type": "websocket.receive", "text": ""}
            return message

        await self._app(scope, checked if scope["type"] == "websocket" else receive, send)


def _is_object(text: str | None) -> bool:
    try:
        return isinstance(json.loads(text or ""), dict)
    except (ValueError, RecursionError):
        return False


def serve(pool: PoolSettings, settings: ServerSettings, sessions: SessionSettings) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        SandboxError: The pool does not start.
        OSError: The address is unavailable.
    """
    with bound_socket(settings.host, settings.port, settings.idle_timeout_seconds) as listener, pool.open() as opened:
        app = application(opened, pool.cpu_seconds, settings, sessions)
        listen(JsonMessages(app), settings, listener)
