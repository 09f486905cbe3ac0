"""The sandbox as a tool of the Model Context Protocol: `python -m torl_sandbox mcp`, over stdio or streamable HTTP.

The tool `run_python` keeps its sessions by name in one store for both transports, which bounds abandoned sessions.
"""

import asyncio
import base64
import mimetypes
import re
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import quote

from mcp.server.mcpserver import MCPServer
from mcp.types import (
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    TextContent,
    TextResourceContents,
)
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from torl_sandbox import __version__
from torl_sandbox.errors import OutcomeStatus
from torl_sandbox.execution import Execution, render_transcript
from torl_sandbox.notebook import SAVE_SHOWN
from torl_sandbox.options import CellOptions
from torl_sandbox.pool import SandboxPool
from torl_sandbox.servers.admission import CONTENT_TYPE, Admission, OverloadedError, ServerMetrics, bounded_wall_time
from torl_sandbox.servers.mcp_stdio import serve_stdio
from torl_sandbox.servers.sessions import ProtocolSessions, SessionStore
from torl_sandbox.servers.settings import McpSettings, PoolSettings, ServerSettings, SessionSettings, bound_socket
from torl_sandbox.servers.uvicorn_server import listen
from torl_sandbox.session import Session

_NEW = "new"
_MAX_TEXT = 20_000  # characters of a result's text; the structured content has all
_MAX_PROTOCOL_SESSIONS = 1024
_PROTOCOL_SESSION_SECONDS = 600.0
_MAY_SHOW_FIGURES = re.compile("plot|show")
_IMAGE_TYPES = {"image/png", "image/jpeg", "image/gif", "image/webp"}
_DATA, _BASE64 = "data:", ";base64,"
_ABOUT = (
    "Runs Python in a sandbox, with numpy, scipy, sympy, pandas and the standard library; no network, no processes. "
    "Returns what it prints, the value of its last line, and the files that it writes; pictures and "
    "the figures of plt.show() are shown."
)


class SandboxMcpServer:
    """The tool `run_python`, which runs code in a pool."""

    def __init__(
        self,
        pool: SandboxPool,
        cpu_seconds: float,
        settings: ServerSettings,
        sessions: SessionSettings,
        mcp: McpSettings,
    ) -> None:
        """Serve a pool whose runs have at most `cpu_seconds` of CPU time."""
        self._pool = pool
        self._cpu_seconds = cpu_seconds
        self._fresh: Session | None = None
        self._max_file_bytes = mcp.max_returned_mib << 20
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
        """Run a program. Its errors are part of the result."""
        try:
            contents = decode_files(files or {})
            with self._admission.admit(len(code) + sum(map(len, contents.values()))):
                result = await self._run(code, session, contents)
        except OverloadedError as overload:
            result = failure(f"the sandbox is busy: {overload}; try again in a second")
        except (ValueError, RuntimeError) as error:  # invalid files; a busy session
            result = failure(str(error))
        self._metrics.count_response("run_python", "refused" if result.structured_content is None else "run")
        return result

    async def _run(self, code: str, name: str | None, files: dict[str, bytes]) -> CallToolResult:
        options: CellOptions = {"files": files, "return_files": True, "value": True}
        if name is None and not _MAY_SHOW_FIGURES.search(code):
            async with bounded_wall_time(self._cpu_seconds):
                return self._result(await self._pool.run_async(code, **options), None)
        is_new = name is None or name == _NEW
        session = await self._fresh_session() if is_new else self._sessions.get(name or "")
        if session is None:
            return failure(f"the session {name!r} does not exist or has expired: start a new one with {_NEW!r}")
        async with bounded_wall_time(self._cpu_seconds):
            outcome = await session.run_async(code, **options)
        if name == _NEW:
            name = self._sessions.add(session)
        self._sessions.evict()
        return self._result(outcome, name)

    async def _fresh_session(self) -> Session:
        """Return a new session that saves the figures which it shows."""
        if self._fresh is None:
            session = self._pool.session()
            await session.run_async(SAVE_SHOWN)
            self._fresh = session
        return self._fresh.fork()

    def _result(self, outcome: Execution, session: str | None) -> CallToolResult:
        return result_of(outcome, session, self._cpu_seconds, self._max_file_bytes)

    def server(self) -> MCPServer:
        """Build the official SDK's server with this tool."""
        server = MCPServer("torl-sandbox", version=__version__, instructions=_ABOUT, log_level="WARNING")
        server.add_tool(self.run_python, description=_ABOUT, structured_output=False)
        server.custom_route("/metrics", ["GET"])(self._show_metrics)
        return server

    async def _show_metrics(self, _: Request) -> Response:
        return Response(self._metrics.text(), headers={"Content-Type": CONTENT_TYPE})


def serve(pool: PoolSettings, settings: ServerSettings, sessions: SessionSettings, mcp: McpSettings) -> None:
    """Serve on stdin and stdout until stdin ends, or over HTTP until SIGTERM.

    Raises:
        SandboxError: The pool does not start.
        OSError: The address is unavailable.
    """
    if not mcp.http:
        with pool.open() as opened:
            server = SandboxMcpServer(opened, pool.cpu_seconds, settings, sessions, mcp).server()
            asyncio.run(serve_stdio(server, opened))
        return
    with bound_socket(settings.host, settings.port, settings.idle_timeout_seconds) as listener, pool.open() as opened:
        server = SandboxMcpServer(opened, pool.cpu_seconds, settings, sessions, mcp).server()
        app = server.streamable_http_app(
            json_response=True,  # the library ends event streams at SIGTERM, without their answer
            max_sessions=2 * _MAX_PROTOCOL_SESSIONS,  # refuses clients that all have pending requests
            session_idle_timeout=_PROTOCOL_SESSION_SECONDS,
            max_request_body_size=settings.body_mib << 20,
            host=settings.host,
        )
        listen(ProtocolSessions(app, _MAX_PROTOCOL_SESSIONS), settings, listener, "/mcp")


def result_of(outcome: Execution, session: str | None, cpu_seconds: float, max_file_bytes: int) -> CallToolResult:
    """Convert the outcome of a run to a tool result: output as text, images as images, other files as resources.

    Args:
        outcome: Outcome of the run.
        session: Name of the session that continues from it, if any.
        cpu_seconds: CPU time limit of the run.
        max_file_bytes: Maximum total size of returned files. Other files are listed with their sizes.
    """
    content: list[ContentBlock] = [TextContent(text=_text(outcome, session, cpu_seconds))]
    remaining = max_file_bytes
    for path, data in outcome.files.items():
        if data and len(data) <= remaining:  # providers refuse empty blocks; the text names the file
            content.append(_file(path, data))
            remaining -= len(data)
    structured: dict[str, Any] = {
        "status": outcome.status.value,
        "stdout": outcome.stdout,
        "stderr": outcome.stderr,
        "value": outcome.value,
        "error": outcome.exception_line,
        "cpu_seconds": outcome.cpu_seconds,
        "session": session,
        "files": {_printable(path): len(data) for path, data in outcome.files.items()},
    }
    return CallToolResult(content=content, structured_content=structured, is_error=not outcome.ok)


def failure(reason: str) -> CallToolResult:
    """Build the result of a call that was not run."""
    return CallToolResult(content=[TextContent(text=reason)], is_error=True)


def decode_files(files: Mapping[str, str]) -> dict[str, bytes]:
    """Decode files of a call, which are text or data URLs in base64.

    Raises:
        ValueError: A data URL has invalid base64.
    """
    return {path: _decoded(text) for path, text in files.items()}


def _decoded(text: str) -> bytes:
    head, marker, data = text.partition(_BASE64)
    if head.startswith(_DATA) and marker:
        return base64.b64decode(data, validate=True)
    return text.encode()


def _text(outcome: Execution, session: str | None, cpu_seconds: float) -> str:
    transcript = render_transcript(outcome)
    if outcome.status is OutcomeStatus.TIMEOUT:
        limit = f"[time limit of {cpu_seconds:g} s of CPU time exceeded]"
        if outcome.cpu_seconds < cpu_seconds:
            limit = f"[stopped after {outcome.wall_seconds:.0f} s, because the machine is busy]"
        transcript = transcript.removesuffix(f"[{outcome.status.value}]") + limit
    lines = [_shortened(transcript)]
    lines += [f"[file {_printable(path)}, {len(data)} bytes]" for path, data in outcome.files.items()]
    return "\n".join(lines if session is None else [*lines, f"[session {session}]"])


def _shortened(text: str) -> str:
    """Return the beginning and the end of a long text."""
    omitted = len(text) - _MAX_TEXT
    if omitted <= 0:
        return text
    half = _MAX_TEXT // 2
    return f"{text[:half]}\n[... {omitted} characters omitted ...]\n{text[-half:]}"


def _file(path: str, data: bytes) -> ContentBlock:
    kind = mimetypes.guess_type(path)[0] or "application/octet-stream"
    if kind in _IMAGE_TYPES:
        return ImageContent(data=base64.b64encode(data).decode(), mime_type=kind)
    uri = f"file:///work/{quote(path, errors='surrogateescape')}"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        blob = base64.b64encode(data).decode()
        return EmbeddedResource(resource=BlobResourceContents(uri=uri, mime_type=kind, blob=blob))
    if kind == "application/octet-stream":
        kind = "text/plain"
    return EmbeddedResource(resource=TextResourceContents(uri=uri, mime_type=kind, text=text))


def _printable(path: str) -> str:
    """Replace bytes of a path that are not valid UTF-8."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
