"""Clients of MCP's protocol before 2026 and after, and the end of the server."""

import asyncio
import contextlib
import http.client
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import pytest
from mcp import Client

from serving import Server, run_server, until

RUNNING = 'torl_sandbox_runs_now{state="running"}'
SLOW = "n = 0\nwhile n < 3_000_000: n += 1\nn"
OPENING = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "old", "version": "1"},
}


class OldClient:
    """A client without a library."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._session: str | None = None
        self.ask("initialize", OPENING)

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        """The result of a request, or the status of a refusal."""
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if self._session is not None:
            headers |= {"Mcp-Session-Id": self._session, "Mcp-Protocol-Version": "2025-06-18"}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        connection = http.client.HTTPConnection(urlsplit(self._server.url).netloc, timeout=60)
        with contextlib.closing(connection):
            connection.request("POST", "/mcp", body, headers)
            response = connection.getresponse()
            self._session = response.headers.get("Mcp-Session-Id", self._session)
            text = response.read().decode()
        if response.status != 200:
            return response.status
        (line,) = [line for line in text.splitlines() if line.startswith(("data: {", "{"))]
        return json.loads(line.removeprefix("data: "))["result"]

    def run(self, code: str) -> Any:
        """The structured content of a run, or the status of a refusal."""
        result = self.ask("tools/call", {"name": "run_python", "arguments": {"code": code}})
        return result["structuredContent"] if isinstance(result, dict) else result

    def events(self) -> tuple[int, bytes]:
        """Status and content of the event stream, when the server has ended it."""
        connection = http.client.HTTPConnection(urlsplit(self._server.url).netloc, timeout=60)
        with contextlib.closing(connection):
            headers = {"Accept": "text/event-stream", "Mcp-Session-Id": self._session or ""}
            connection.request("GET", "/mcp", headers=headers)
            response = connection.getresponse()
            return response.status, response.read()


@pytest.fixture
def server() -> Iterator[Server]:
    with run_server("--http", "--workers", "1", command="mcp") as running:
        yield running


def test_sigterm_answers_the_pending_call_and_ends_event_streams(
    server: Server, capfd: pytest.CaptureFixture[str]
) -> None:
    client, listening = OldClient(server), OldClient(server)
    with ThreadPoolExecutor(2) as threads:
        events = threads.submit(listening.events)
        call = threads.submit(client.run, SLOW)
        until(lambda: server.metric(RUNNING) == 1)
        assert server.terminate() == 0
        assert call.result()["value"] == "3000000"
        assert events.result() == (200, b"")
    assert capfd.readouterr().err == ""


async def test_sigterm_answers_the_pending_call_of_a_new_client(server: Server) -> None:
    async with Client(server.url) as client:
        await client.list_tools()  # else the client asks for them after the call
        call = asyncio.create_task(client.call_tool("run_python", {"code": SLOW}))
        await asyncio.to_thread(until, lambda: server.metric(RUNNING) == 1)
        ending = asyncio.create_task(asyncio.to_thread(server.terminate))
        result: Any = await call
        assert result.structured_content["value"] == "3000000"
        assert await ending == 0
