"""The pool as a tool of the Model Context Protocol: `python -m torl.sandbox mcp`, over stdio or streamable HTTP.

One tool, `run_python`. Its sessions are kept here by name, whatever the transport, so that what clients forget is
bounded by one store.
"""

import asyncio
import os
import signal
from typing import Annotated

from mcp.server.mcpserver import MCPServer
from mcp.types import CallToolResult
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from torl.apps.serve.admission import Admission, OverloadedError
from torl.apps.serve.mcp_results import contents, failure, result_of
from torl.apps.serve.metrics import CONTENT_TYPE, ServerMetrics
from torl.apps.serve.sessions import SessionStore
from torl.apps.serve.settings import McpSettings, PoolSettings, ServerSettings, SessionSettings, bound_socket
from torl.apps.serve.uvicorn_server import listen
from torl.sandbox.options import CellOptions
from torl.sandbox.pool import SandboxPool
from torl.sandbox.session import Session
from torl.version import __version__

_NEW = "new"
_ABOUT = (
    "Runs Python in a sandbox, with numpy, scipy, sympy, pandas and the standard library; no network, no processes. "
    "Returns what it prints, the value of its last line, and the files that it writes; pictures are shown."
)


class SandboxMcpServer:
    """The tool, in front of a pool."""

    def __init__(
        self, pool: SandboxPool, settings: ServerSettings, sessions: SessionSettings, own: McpSettings
    ) -> None:
        self._pool = pool
        self._file_bytes = own.max_returned_mib << 20
        self._admission = Admission(settings.max_pending_requests, settings.max_pending_mib << 20)
        self._sessions = SessionStore(sessions)
        self._metrics = ServerMetrics(pool, self._admission)

    async def run_python(
        self,
        code: Annotated[str, Field(description="A Python program.")],
        session: Annotated[
            str | None,
            Field(description='"new" keeps the variables and files and returns a name, which continues from them.'),
        ] = None,
        files: Annotated[
            dict[str, str] | None,
            Field(description="Files that the program finds, by path: text, or a data URL in base64."),
        ] = None,
    ) -> CallToolResult:
        """Run a program; what it does wrong is its result."""
        try:
            given = contents(files or {})
            with self._admission.admit(len(code) + sum(map(len, given.values()))):
                result = await self._run(code, session, given)
        except OverloadedError as overload:
            result = failure(f"the sandbox is busy: {overload}; try again in a second")
        except (ValueError, RuntimeError) as error:  # files that cannot be; a session that is running already
            result = failure(str(error))
        self._metrics.answered("run_python", "refused" if result.structured_content is None else "run")
        return result

    async def _run(self, code: str, name: str | None, files: dict[str, bytes]) -> CallToolResult:
        options: CellOptions = {"files": files, "return_files": True, "value": True}
        if name is None:
            return result_of(await self._pool.run_async(code, **options), None, self._file_bytes)
        session: Session | None = self._pool.session() if name == _NEW else self._sessions.get(name)
        if session is None:
            return failure(f"there is no session {name!r}, or none any more: begin another one with {_NEW!r}")
        outcome = await session.run_async(code, **options)
        if name == _NEW:
            name = self._sessions.add(session)
        self._sessions.evict()
        return result_of(outcome, name, self._file_bytes)

    def server(self) -> MCPServer:
        """The official SDK's server with this tool."""
        server = MCPServer("torl-sandbox", version=__version__, instructions=_ABOUT, log_level="WARNING")
        server.add_tool(self.run_python, description=_ABOUT, structured_output=False)
        server.custom_route("/metrics", ["GET"])(self._show_metrics)
        return server

    async def _show_metrics(self, _: Request) -> Response:
        return Response(self._metrics.text(), headers={"Content-Type": CONTENT_TYPE})


def serve(pool: PoolSettings, settings: ServerSettings, sessions: SessionSettings, own: McpSettings) -> None:
    """Answer on stdin and stdout until stdin ends, or over HTTP; until SIGTERM.

    Raises:
        SandboxError: the pool does not start.
        OSError: the address cannot be had.
    """
    if not own.http:
        with pool.open() as opened:
            asyncio.run(_serve_stdio(SandboxMcpServer(opened, settings, sessions, own).server(), opened))
        return
    with bound_socket(settings.host, settings.port, settings.idle_timeout_seconds) as listener, pool.open() as opened:
        server = SandboxMcpServer(opened, settings, sessions, own).server()
        app = server.streamable_http_app(
            # For clients of the protocol up to 2025-11-25; later ones have no sessions but ours.
            max_sessions=sessions.max_sessions,
            session_idle_timeout=sessions.session_ttl_seconds,
            max_request_body_size=settings.body_mib << 20,
            host=settings.host,
        )
        listen(app, settings, listener, "/mcp")


async def _serve_stdio(server: MCPServer, pool: SandboxPool) -> None:
    """Answer until stdin ends. SIGTERM gives up what is under way: the thread that reads stdin cannot be woken."""

    def leave() -> None:
        pool.close()
        os._exit(0)

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, leave)
    await server.run_stdio_async()
