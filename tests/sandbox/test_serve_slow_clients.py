"""Clients that hold connections without using them: `--idle-timeout-seconds` and the limit on connections."""

import contextlib
import http.client
import json
import select
import socket
from collections.abc import Iterator

import pytest

from serving import Server, connected, given_up, run_server, until

OPEN = "torl_sandbox_requests_open"
PING = b"GET /v1/ping HTTP/1.1\r\nHost: localhost\r\n\r\n"
HEAD = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
FEW = 300  # descriptors that a process may have, of which the server keeps 256
ALLOWED = FEW - 256
SIZE = 20_000_000  # more than the kernel holds on the way


def asked(connection: socket.socket) -> int:
    """The status of an answer on a connection that stays."""
    connection.sendall(b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n")
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    answer.read()
    return answer.status


def post(path: bytes, content: object) -> bytes:
    body = json.dumps(content).encode()
    return HEAD % path + b"Content-Length: %d\r\n\r\n" % len(body) + body


@pytest.fixture(scope="module", params=["serve", "mcp"])
def impatient(request: pytest.FixtureRequest) -> Iterator[Server]:
    options = ["--workers", "1", "--idle-timeout-seconds", "1", "--output-kib", str(SIZE // 512)]
    with run_server(*options, *(["--http"] if request.param == "mcp" else []), command=request.param) as running:
        yield running


def test_incomplete_request_is_dropped(impatient: Server) -> None:
    path = b"/mcp" if impatient.url.endswith("/mcp") else b"/run_code"
    sent = [
        b"",
        b"POST /",
        HEAD % path,
        PING,
        PING + b"GET",
        HEAD % path + b"Content-Length: 100\r\n\r\n{",
        HEAD % path + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
    ]
    connections = [connected(impatient) for _ in sent]
    for connection, request in zip(connections, sent, strict=True):
        connection.sendall(request)
    answers = [given_up(connection) for connection in connections]
    assert answers[:3] == [b"", b"", b""]
    assert all(answer.startswith(b"HTTP/1.1 ") for answer in answers[3:5])
    assert all(not answer or answer.startswith(b"HTTP/1.1 40") for answer in answers[5:])
    until(lambda: impatient.metric(OPEN) == 0)


@pytest.mark.parametrize("count", [1, 1000])
def test_client_that_reads_no_answers_is_dropped(impatient: Server, count: int) -> None:
    def ask_on() -> None:
        while True:
            connection.sendall(PING * count)

    before = peak_mb(impatient)
    with connected(impatient, received=4096) as connection, pytest.raises((ConnectionResetError, BrokenPipeError)):
        ask_on()
    assert peak_mb(impatient) < before + 32


@pytest.mark.parametrize("impatient", ["serve"], indirect=True)
def test_client_that_reads_no_large_answer_is_dropped(impatient: Server) -> None:
    connections = [connected(impatient, received=4096) for _ in range(3)]
    for connection in connections:
        connection.sendall(post(b"/run_code", {"code": f"print('x' * {SIZE})", "language": "python"}))
    until(lambda: impatient.metric('torl_sandbox_requests_total{code="200",path="/run_code"}') == 3)
    until(lambda: impatient.metric(OPEN) == 0)
    assert [len(given_up(connection)) < SIZE for connection in connections] == [True, True, True]


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /v1/\0ping HTTP/1.1\r\n\r\n", b"400"),
        (PING[:-2] + b"A: a\r\n" * 100 + b"\r\n", b"400"),
        (
            HEAD % b"/run_code"
            + b"Connection: close\r\nContent-Encoding: deflate\r\nContent-Length: 4\r\n\r\n\xff\xff\xff\xff",
            b"415",
        ),
    ],
)
def test_invalid_request_leaves_no_traceback_on_stderr(
    request_bytes: bytes, status: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    with run_server("--workers", "1") as server, connected(server) as connection:
        connection.sendall(request_bytes)
        assert given_up(connection).split()[1] == status
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "start",
    [
        b"GET /",
        b"A: ",
        b"Transfer-Encoding: chunked\r\n\r\n1;",
        b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\nA: ",
    ],
    ids=["address", "header", "chunk", "trailer"],
)
def test_a_head_without_end_takes_no_memory(impatient: Server, start: bytes) -> None:
    before = peak_mb(impatient)
    path = b"/mcp" if impatient.url.endswith("/mcp") else b"/run_code"
    with connected(impatient) as connection:
        connection.sendall(start if start.startswith(b"GET") else HEAD % path + start)
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            for _ in range(64):
                connection.sendall(b"a" * (1 << 20))
        given_up(connection)
    assert peak_mb(impatient) < before + 8


def peak_mb(server: Server) -> float:
    """The most memory that the server's own process had in RAM, in MB."""
    with open(f"/proc/{server.process.pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:")) / 1000


def test_a_large_chunked_body_is_refused(impatient: Server) -> None:
    path = b"/mcp" if impatient.url.endswith("/mcp") else b"/run_code"
    with connected(impatient) as connection:
        connection.sendall(HEAD % path + b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(17):
            connection.sendall(b"%x\r\n%s\r\n" % (1 << 20, b" " * (1 << 20)))
        connection.sendall(b"0\r\n\r\n")
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert (answer.status, answer.read()) == (413, b'{"detail": "the request has more than 16777216 bytes"}')


@pytest.mark.parametrize("impatient", ["serve"], indirect=True)
def test_a_refused_client_can_send_its_whole_request(impatient: Server) -> None:
    size = 20 << 20  # more than the limit, and than the kernel holds on the way
    with connected(impatient) as connection:
        connection.sendall(HEAD % b"/run_code" + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(20):
            connection.sendall(b" " * (1 << 20))
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert (answer.status, answer.read()[-27:]) == (413, b'; the maximum is 16777216"}')


@pytest.mark.parametrize("command", ["serve", "mcp"])
def test_beyond_the_limit_the_oldest_idle_connection_is_closed(command: str) -> None:
    few = ("sh", "-c", f'ulimit -n {FEW}; exec "$@"', "sh")
    options = ["--http"] if command == "mcp" else []
    with (
        run_server("--workers", "1", *options, command=command, within=few) as server,
        contextlib.ExitStack() as opened,
    ):
        busy = opened.enter_context(connected(server))
        busy.sendall(HEAD % (b"/mcp" if command == "mcp" else b"/run_code") + b"Content-Length: 100\r\n\r\n{")
        until(lambda: server.metric(OPEN) == (command == "serve"))
        idle = [opened.enter_context(connected(server)) for _ in range(FEW)]
        until(lambda: len(closed(idle)) > FEW - ALLOWED)
        last = opened.enter_context(connected(server))
        assert asked(last) == 404
        kept = len(idle) - len(closed(idle))
        assert closed(idle) == idle[: len(idle) - kept]
        assert ALLOWED - 5 < kept < ALLOWED
        assert closed([busy]) == []


def closed(connections: list[socket.socket]) -> list[socket.socket]:
    readable = set(select.select(connections, [], [], 0)[0])
    return [each for each in connections if each in readable]
