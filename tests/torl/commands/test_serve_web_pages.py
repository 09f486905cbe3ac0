"""Requests of web pages, which every server refuses."""

import contextlib
import http.client
import sys
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from serving import Server, run_command, run_server

GRADER = [sys.executable, "-m", "torl", "grader", "serve", "--port", "0", "--workers", "1"]
PATHS = {
    "serve": [("/run_code", b"{}"), ("/v1/ping", None), ("/metrics", None), ("/nothing", None)],
    "mcp": [("/mcp", b"{}"), ("/metrics", None), ("/nothing", None)],
    "rewards": [("/grade", b"{}"), ("/v1/ping", None)],
}


@pytest.fixture(scope="module", params=PATHS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    if request.param == "rewards":
        with run_command(GRADER) as running:
            yield running
    else:
        options = ["--http"] if request.param == "mcp" else []
        with run_server("--workers", "1", *options, command=request.param) as running:
            yield running


def status(server: Server, path: str, body: bytes | None, headers: dict[str, str]) -> int:
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=60)
    with contextlib.closing(connection):
        given = {"Content-Type": "application/json", **headers}
        connection.request("GET" if body is None else "POST", path, body, given)
        return connection.getresponse().status


def test_a_foreign_host_or_origin_is_refused_on_every_path(server: Server, request: pytest.FixtureRequest) -> None:
    for path, body in PATHS[request.node.callspec.params["server"]]:
        assert status(server, path, body, {"Origin": "http://evil.example"}) == 403
        assert status(server, path, body, {"Origin": "http://evil.example", "Host": "evil.example"}) == 421
        assert status(server, path, body, {"Origin": "http://localhost:3000"}) not in (403, 421)
