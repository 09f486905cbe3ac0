"""The pool as a tool of the Model Context Protocol: `python -m torl.sandbox mcp`, over stdio or streamable HTTP.

One tool, `run_python`. Its sessions are kept here by name, whatever the transport, so that what clients forget is
bounded by one store.
"""

import asyncio
import os
import signal
import socket
from typing import Annotated

import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.types import CallToolResult
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from torl.errors import SandboxError
from torl.sandbox.options import PartOptions
from torl.sandbox.pool import SandboxPool
from torl.sandbox.serve.admission import Admission, OverloadedError
from torl.sandbox.serve.mcp_results import contents, failure, result_of
from torl.sandbox.serve.metrics import CONTENT_TYPE, DoorMetrics
from torl.sandbox.serve.sessions import SessionStore
from torl.sandbox.serve.settings import DoorSettings, McpSettings, PoolSettings, address_of, bound_socket
from torl.sandbox.session import Session
from torl.version import __version__

_NEW = "new"
_BACKLOG = 1024  # connections that wait to be accepted
_ABOUT = (
    "Runs Python in a sandbox, with numpy, scipy, sympy, pandas and the standard library; no network, no processes. "
    "Returns what it prints, the value of its last line, and the files that it writes; pictures are shown."
)


class McpDoor:
    """The tool, in front of a pool."""

    def __init__(self, pool: SandboxPool, settings: DoorSettings, own: McpSettings) -> None:
        self._pool = pool
        self._file_bytes = own.returned_mib << 20
        self._admission = Admission(settings.queue, settings.pending_mib << 20)
        self._sessions = SessionStore(own.sessions, own.sessions_mib << 20, own.session_seconds)
        self._metrics = DoorMetrics(pool, self._admission)

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
        options: PartOptions = {"files": files, "return_files": True, "value": True}
        if name is None:
            return result_of(await self._pool.run_async(code, **options), None, self._file_bytes)
        session: Session | None = self._pool.session() if name == _NEW else self._sessions.get(name)
        if session is None:
            return failure(f"there is no session {name!r}, or none any more: begin another one with {_NEW!r}")
        outcome = await session.run_async(code, **options)
        if name == _NEW:
            name = self._sessions.add(session)
        self._sessions.tidy()
        return result_of(outcome, name, self._file_bytes)

    def server(self) -> MCPServer:
        """The official SDK's server with this tool."""
        server = MCPServer("torl-sandbox", version=__version__, instructions=_ABOUT, log_level="WARNING")
        server.add_tool(self.run_python, description=_ABOUT, structured_output=False)
        server.custom_route("/metrics", ["GET"])(self._show_metrics)
        return server

    async def _show_metrics(self, _: Request) -> Response:
        return Response(self._metrics.text(), headers={"Content-Type": CONTENT_TYPE})


def serve(pool: PoolSettings, settings: DoorSettings, own: McpSettings) -> None:
    """Answer on stdin and stdout until stdin ends, or over HTTP; until SIGTERM.

    Raises:
        SandboxError: the pool does not start.
        OSError: the address cannot be had.
    """
    if not own.http:
        with pool.open() as opened:
            asyncio.run(_serve_stdio(McpDoor(opened, settings, own).server(), opened))
        return
    with bound_socket(settings.host, settings.port) as listener, pool.open() as opened:
        server = McpDoor(opened, settings, own).server()
        app = server.streamable_http_app(
            # For clients of the protocol up to 2025-11-25; later ones have no sessions but ours.
            max_sessions=own.sessions,
            session_idle_timeout=own.session_seconds,
            max_request_body_size=settings.body_mib << 20,
            host=settings.host,
        )
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            backlog=_BACKLOG,
            # The door refuses in the protocol's own words; this is for who only opens connections.
            limit_concurrency=2 * settings.queue + _BACKLOG,
            timeout_keep_alive=int(settings.idle_seconds),
            timeout_graceful_shutdown=int(settings.grace_seconds),
        )
        _Server(config, listener).run(sockets=[listener])


async def _serve_stdio(server: MCPServer, pool: SandboxPool) -> None:
    """Answer until stdin ends. SIGTERM gives up what is under way: the thread that reads stdin cannot be woken."""

    def leave() -> None:
        pool.close()
        os._exit(0)

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, leave)
    await server.run_stdio_async()


class _Server(uvicorn.Server):
    """Says where it listens."""

    def __init__(self, config: uvicorn.Config, listener: socket.socket) -> None:
        super().__init__(config)
        self._listener = listener

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.should_exit:
            raise SandboxError("the door did not open: see above")
        print(f"listening on {address_of(self._listener)}/mcp", flush=True)
