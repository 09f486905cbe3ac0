"""Protocol sessions of MCP's SDK whose clients leave without closing them."""

import asyncio
import contextlib
import json
from typing import Any

from mcp.server.mcpserver import MCPServer

from torl_sandbox.servers.asgi import Message
from torl_sandbox.servers.sessions import ProtocolSessions

OPENING = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}},
}


async def ask(app: Any, method: str, session: str | None, content: Any = None) -> tuple[int, str | None]:
    """Status and session of the response to a request."""
    headers = {
        "host": "localhost:80",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
    }
    if session is not None:
        headers |= {"mcp-session-id": session, "mcp-protocol-version": "2025-06-18"}
    scope = {
        "type": "http", "http_version": "1.1", "method": method, "path": "/mcp", "query_string": b"", "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }  # fmt: skip
    body: list[Message] = [{"type": "http.request", "body": json.dumps(content).encode(), "more_body": False}]
    started: list[Message] = []

    async def receive() -> Message:
        return body.pop() if body else await asyncio.Future()

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            started.append(message)

    await app(scope, receive, send)
    found = {name: value.decode() for name, value in started[0]["headers"]}
    return started[0]["status"], found.get(b"mcp-session-id")


async def opened(app: Any) -> str:
    status, session = await ask(app, "POST", None, OPENING)
    assert (status, session is None) == (200, False)
    return session or ""


async def is_open(app: Any, session: str) -> bool:
    status, _ = await ask(app, "POST", session, {"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert status in (202, 404)
    return status == 202


async def test_beyond_the_maximum_the_one_that_is_unused_for_longest_is_closed() -> None:
    library = MCPServer("test").streamable_http_app(json_response=True, max_sessions=5)
    app = ProtocolSessions(library, 3)
    async with library.router.lifespan_context(library):
        listening, second, third = [await opened(app) for _ in range(3)]
        stream = asyncio.create_task(ask(app, "GET", listening))
        assert await is_open(app, second)
        fourth = await opened(app)
        assert [await is_open(app, each) for each in (listening, second, third, fourth)] == [True, True, False, True]
        for _ in range(20):
            await opened(app)
        assert [await is_open(app, each) for each in (listening, second, fourth)] == [True, False, False]
        stream.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await stream
        for _ in range(20):
            await opened(app)
        assert not await is_open(app, listening)
