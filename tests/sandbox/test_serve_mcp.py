"""The tool `run_python` of the Model Context Protocol, as the official SDK's own client sees it."""

import asyncio
import base64
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import EmbeddedResource, ImageContent, TextContent

from serving import ENDLESS, Server, run_server, until

RUNNING = 'torl_sandbox_runs_now{state="running"}'
COMMAND = ["-m", "torl_sandbox", "mcp", "--workers", "1"]
PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII=")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    options = (
        "--workers",
        "1",
        "--cpu-seconds",
        "20",
        "--max-pending-requests",
        "4",
        "--max-returned-mib",
        "1",
        "--max-sessions",
        "3",
    )
    with run_server("--http", *options, command="mcp") as running:
        yield running


@asynccontextmanager
async def over(transport: str, server: Server) -> AsyncIterator[Client]:
    if transport == "http":
        async with Client(server.url) as client:
            yield client
    else:
        words = [*COMMAND, "--max-returned-mib", "1", "--max-sessions", "3"]
        process = StdioServerParameters(command=sys.executable, args=words, env={"PYTHONPATH": ":".join(sys.path)})
        async with Client(stdio_client(process)) as client:
            yield client


async def called(client: Client, code: str, **arguments: Any) -> Any:
    return await client.call_tool("run_python", {"code": code, **arguments})


def text_of(result: Any) -> str:
    first = result.content[0]
    assert isinstance(first, TextContent)
    return first.text


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_client_runs_programs_with_sessions_files_and_pictures(transport: str, server: Server) -> None:
    async with over(transport, server) as client:
        (tool,) = (await client.list_tools()).tools
        assert tool.name == "run_python"
        assert set(tool.input_schema["properties"]) == {"code", "session", "files"}

        result = await called(client, "import sys\nprint('out')\nprint('err', file=sys.stderr)\n6 * 7")
        assert (text_of(result), result.is_error) == ("out\n42\nerr", False)
        assert result.structured_content["value"] == "42"

        result = await called(client, "print('before')\n1 / 0")
        assert result.is_error
        assert text_of(result).startswith("before\nTraceback")
        assert result.structured_content["error"] == "ZeroDivisionError: division by zero"

        session = (await called(client, "x = 41; open('kept', 'w').write('k');", session="new")).structured_content[
            "session"
        ]
        result = await called(client, "print(open('kept').read())\nx + 1", session=session)
        assert text_of(result) == f"k\n42\n[session {session}]"
        assert (await called(client, "x")).structured_content["error"].startswith("NameError")

        code = (
            "data = open('in.bin', 'rb').read()\nopen('p.png', 'wb').write(data)\n"
            "open('o.csv', 'w').write(open('a').read())"
        )
        given = {"a": "1,2\n", "in.bin": f"data:image/png;base64,{base64.b64encode(PNG).decode()}"}
        result = await called(client, code, files=given)
        picture, table = sorted(result.content[1:], key=lambda each: each.type)
        assert isinstance(picture, ImageContent)
        assert (picture.mime_type, base64.b64decode(picture.data)) == ("image/png", PNG)
        assert isinstance(table, EmbeddedResource)
        assert (table.resource.uri, table.resource.mime_type, table.resource.text) == (
            "file:///work/o.csv", "text/csv", "1,2\n",
        )  # fmt: skip


async def test_a_file_that_is_too_large_is_named_and_not_sent(server: Server) -> None:
    async with over("http", server) as client:
        result = await called(client, "open('a.bin', 'wb').write(bytes(3 << 20))\nopen('b', 'wb').write(b'\\xff');")
    assert [each.type for each in result.content] == ["text", "resource"]
    assert result.structured_content["files"] == {"a.bin": 3 << 20, "b": 1}
    assert base64.b64decode(result.content[1].resource.blob) == b"\xff"


FIGURES = """
import matplotlib.pyplot as plt
plt.plot([1, 2])
plt.show()
plt.figure()
plt.plot([2, 1])
plt.show()
plt.get_fignums()
"""


@pytest.mark.parametrize("session", [None, "new"])
async def test_figures_that_are_shown_are_pictures_of_the_result(server: Server, session: str | None) -> None:
    async with over("http", server) as client:
        result = await called(client, FIGURES, session=session)
        assert not result.is_error, text_of(result)
        assert result.structured_content["value"] == "[]"
        assert list(result.structured_content["files"]) == [".figures/1.png", ".figures/2.png"]
        pictures = [each for each in result.content if isinstance(each, ImageContent)]
        assert len({picture.data for picture in pictures}) == 2
        assert all(base64.b64decode(picture.data).startswith(PNG[:8]) for picture in pictures)
        error = await called(client, "plt.show\nimport matplotlib.pyplot as plt\n")
        assert 'File "main.py", line 1' in text_of(error)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"code": "1", "session": "nobody"}, "the session 'nobody' does not exist or has expired"),
        ({"code": "1", "files": {"../a": "x"}}, "../a"),
        ({"code": "1", "files": {"a": "data:;base64,%"}}, "base64"),
        ({"code": 3}, "code"),
        ({}, "code"),
    ],
)
async def test_a_call_that_cannot_be_says_why(server: Server, arguments: dict[str, Any], said: str) -> None:
    async with over("http", server) as client:
        result = await client.call_tool("run_python", arguments)
    assert result.is_error
    assert said in text_of(result)


async def test_stopped_run_is_reported_and_its_session_continues(server: Server) -> None:
    async with over("http", server) as client:
        result = await called(client, "x = 1\nprint('y' * (2 << 20))", session="new")
        assert result.is_error
        session = result.structured_content["session"]
        assert text_of(result).endswith(f"[output_limit]\n[session {session}]")
        assert (await called(client, "2", session=session)).structured_content["value"] == "2"


async def test_of_many_sessions_those_used_last_are_kept(server: Server) -> None:
    async with over("http", server) as client:
        names = [(await called(client, f"x = {i}", session="new")).structured_content["session"] for i in range(5)]
        found = [(await called(client, "x", session=name)).is_error for name in names]
    assert found == [True, True, False, False, False]
    assert len(set(names)) == 5


async def test_overload_is_reported_and_accepted_calls_are_answered(server: Server) -> None:
    async with over("http", server) as client:
        slow = "n = 0\nwhile n < 3_000_000: n += 1\n{}"
        results = await asyncio.gather(*(called(client, slow.format(i)) for i in range(12)), return_exceptions=True)
    answered = [(i, each) for i, each in enumerate(results) if getattr(each, "structured_content", None)]
    assert 1 <= len(answered) < 12
    for number, result in answered:
        assert result.structured_content["value"] == str(number)
    others = [each for each in results if not getattr(each, "structured_content", None)]
    assert all(isinstance(each, Exception) or "the sandbox is busy" in text_of(each) for each in others)
    assert (await asyncio.to_thread(server.metric, "torl_sandbox_requests_open")) == 0


async def test_abandoned_call_is_cancelled(server: Server) -> None:
    before = await asyncio.to_thread(server.metric, "torl_sandbox_cancelled_total")
    async with over("http", server) as client:
        call = asyncio.create_task(called(client, ENDLESS))
        await asyncio.to_thread(until, lambda: server.metric(RUNNING) == 1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.to_thread(until, lambda: server.metric("torl_sandbox_cancelled_total") == before + 1, 10)


# --- its end ----------------------------------------------------------------------------------------------------------


def test_sigterm_ends_http_server_with_0() -> None:
    with run_server("--http", "--workers", "1", "--grace-period-seconds", "2", command="mcp") as server:
        assert server.terminate() == 0


@pytest.mark.parametrize("way", ["sigterm", "end of input"])
def test_stdio_server_ends_with_0(way: str) -> None:
    process = subprocess.Popen([sys.executable, *COMMAND], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(
        '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},'
        '"clientInfo":{"name":"a","version":"1"}}}\n'
    )
    process.stdin.flush()
    assert '"torl-sandbox"' in process.stdout.readline()
    if way == "sigterm":
        process.terminate()
    else:
        process.stdin.close()
    assert process.wait(60) == 0
    process.stdout.close()


@pytest.mark.parametrize(
    ("line", "id", "said"),
    [
        ('{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"run_python","arguments":{"code":"\\ud800"}}}',
         7, "unexpected end of hex escape"),
        ('{"jsonrpc":"2.0","id":"a"}', "a", "the message cannot be read"),
        ("[" * 200_000, None, "the message cannot be read"),
        ("5", None, "the message cannot be read"),
    ],
    ids=["surrogate", "no method", "deep", "number"],
)  # fmt: skip
def test_line_without_a_valid_message_is_answered_with_an_error(line: str, id: Any, said: str) -> None:
    done = subprocess.run([sys.executable, *COMMAND], input=f"\n{line}\n", capture_output=True, text=True, timeout=60)
    answer = json.loads(done.stdout)
    assert (answer["id"], done.returncode, done.stderr) == (id, 0, "")
    assert said in answer["error"]["message"]
    assert len(answer["error"]["message"]) < 1000


@pytest.mark.slow
async def test_ten_thousand_forgotten_sessions_cost_bounded_memory() -> None:
    options = ("--http", "--workers", "2", "--max-sessions", "50", "--max-session-mib", "8")
    with run_server(*options, command="mcp") as server:
        async with Client(server.url) as client:
            for _ in range(100):
                await called(client, "x = list(range(1000))", session="new")
            before = server.resident_mb()
            for _ in range(10_000):
                await called(client, "x = list(range(1000))", session="new")
            assert server.resident_mb() < before + 40
