"""Compressed bodies: refused by every server before anything is decompressed into memory that nothing counts."""

import json
import socket
import sys
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from serving import Server, connected, run_command
from viewed_runs import row, write_run

MIB = 1 << 20
BOMBS = 30
AGENTS = """
import asyncio
from torl.rollout.agents.server import AgentServer
async def serve():
    server = AgentServer()
    await server.start()
    print("listening on", f"http://127.0.0.1:{server._port}", flush=True)
    await asyncio.Event().wait()
asyncio.run(serve())
"""
# By server: its path, a body, and the status of the response to the plain body.
ASKED: dict[str, tuple[str, Any, int]] = {
    "serve": ("/run_code", {"code": "print(1)", "language": "python"}, 200),
    "mcp": ("/mcp", {"jsonrpc": "2.0", "id": 1, "method": "ping"}, 406),  # without the header Accept
    "grade": ("/grade", {"reference": "1", "answer": "1"}, 200),
    "view": ("/api/replay", [], 400),
    "agents": ("/ended/v1/chat/completions", {"messages": []}, 410),
}


@pytest.fixture(scope="module", params=ASKED)
def asked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Server]]:
    module = [sys.executable, "-m"]
    run = write_run(tmp_path_factory.mktemp("runs") / "run", {"step_000000": [row()]})
    commands = {
        "serve": [*module, "torl_sandbox", "serve", "--port", "0", "--workers", "1"],
        "mcp": [*module, "torl_sandbox", "mcp", "--http", "--port", "0", "--workers", "1"],
        "grade": [*module, "torl", "grader", "serve", "--port", "0", "--workers", "1"],
        "view": [*module, "torl", "view", str(run), "--port", "0"],
        "agents": [sys.executable, "-c", AGENTS],
    }
    with run_command(commands[request.param]) as server:
        server.url = server.url.rstrip("/").removesuffix("/mcp")
        yield request.param, server


def request_head(server: Server, path: str, *headers: str) -> bytes:
    host = server.url.removeprefix("http://")
    own = [f"Host: {host}", "Content-Type: application/json", "X-Torl-View: 1"]
    return "\r\n".join([f"POST {path} HTTP/1.1", *own, *headers, "", ""]).encode()


def status(connection: socket.socket) -> int:
    """The status of the response whose first bytes arrive."""
    with connection.makefile("rb") as response:
        return int(response.readline().split()[1])


def bomb(window: int) -> bytes:
    """64 MiB of spaces as zlib compresses them: 31 for gzip, 15 for deflate."""
    packer = zlib.compressobj(9, zlib.DEFLATED, window)
    return b"".join(packer.compress(b" " * MIB) for _ in range(64)) + packer.flush()


@pytest.mark.parametrize("is_chunked", [False, True])
def test_bombs_that_do_not_end_take_no_memory(asked: tuple[str, Server], is_chunked: bool) -> None:
    name, server = asked
    body, path = bomb(31), ASKED[name][0]
    before = server.resident_mb()
    length = "Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {len(body)}"
    start = request_head(server, path, "Content-Encoding: gzip", length)
    start += b"%x\r\n" % len(body) if is_chunked else b""
    held = [connected(server) for _ in range(BOMBS)]
    largest = 0.0
    for connection in held:
        try:
            connection.sendall(start + body[:-10])
            assert status(connection) == 415
        except ConnectionError:  # refused and closed while the body was sent
            pass
        largest = max(largest, server.resident_mb())
    for connection in held:
        connection.close()
    assert largest - before < 30, (before, largest)


@pytest.mark.parametrize(
    "encoding",
    ["gzip", "x-gzip", "GZIP", "deflate", "br", "zstd", "gzip, gzip", "identity, gzip", "compress", "no-such"],
)
def test_every_encoding_is_refused(asked: tuple[str, Server], encoding: str) -> None:
    name, server = asked
    with connected(server) as connection:
        connection.sendall(
            request_head(server, ASKED[name][0], f"Content-Encoding: {encoding}", "Content-Length: 2") + b"{}"
        )
        assert status(connection) == 415
    with connected(server) as connection:  # the second header of the name
        headers = ("Content-Encoding: identity", f"Content-Encoding: {encoding}", "Content-Length: 2")
        connection.sendall(request_head(server, ASKED[name][0], *headers) + b"{}")
        assert status(connection) == 415


@pytest.mark.parametrize("encoding", [None, "identity", "Identity"])
def test_plain_bodies_are_read(asked: tuple[str, Server], encoding: str | None) -> None:
    name, server = asked
    path, content, expected = ASKED[name]
    body = json.dumps(content).encode()
    headers = [f"Content-Length: {len(body)}", *([f"Content-Encoding: {encoding}"] if encoding else [])]
    with connected(server) as connection:
        connection.sendall(request_head(server, path, *headers) + body)
        assert status(connection) == expected


def test_a_request_with_two_lengths_is_refused_and_nothing_after_it_is_answered(asked: tuple[str, Server]) -> None:
    name, server = asked
    path = ASKED[name][0]
    second = request_head(server, path, "Content-Length: 2") + b"{}"
    with connected(server) as connection:
        first = request_head(server, path, "Transfer-Encoding: chunked", f"Content-Length: {5 + len(second)}")
        connection.sendall(first + b"0\r\n\r\n" + second)
        answer = b""
        while part := connection.recv(1 << 16):
            answer += part
    assert [line.split()[1] for line in answer.splitlines() if line.startswith(b"HTTP/1.")] == [b"400"]
