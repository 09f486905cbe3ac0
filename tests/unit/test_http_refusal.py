"""Requests that may come from a web page, and connections beyond a maximum."""

import asyncio

import pytest

from torl.runtime.http import BoundedConnections, Refusal, refusal


@pytest.mark.parametrize(
    ("host", "origin", "address", "status"),
    [
        ("127.0.0.1:8080", None, "127.0.0.1", None),
        ("localhost", None, "127.0.0.1", None),
        ("[::1]:8080", None, "::1", None),
        (None, None, "127.0.0.1", None),
        ("localhost:8080", "http://localhost:3000", "127.0.0.1", None),
        ("localhost:8080", "http://127.0.0.1", "127.0.0.1", None),
        ("evil.example", None, "127.0.0.1", 421),
        ("evil.example:8080", "http://evil.example:8080", "127.0.0.1", 421),
        ("127.0.0.1.evil.example", None, "127.0.0.1", 421),
        ("[::1", None, "::1", 421),
        ("", None, "127.0.0.1", 421),
        ("localhost:8080", "http://evil.example", "127.0.0.1", 403),
        ("localhost:8080", "http://localhost.evil.example", "127.0.0.1", 403),
        ("localhost:8080", "null", "127.0.0.1", 403),
        ("localhost:8080", "", "127.0.0.1", 403),
        ("server.example:8080", None, "0.0.0.0", None),
        ("server.example:8080", "http://server.example:8080", "0.0.0.0", None),
        ("server.example:8080", "http://server.example", "0.0.0.0", 403),
        ("server.example:8080", "http://localhost:8080", "0.0.0.0", 403),
    ],
)
def test_a_page_of_another_site_is_refused(
    host: str | None, origin: str | None, address: str, status: int | None
) -> None:
    refused = refusal(host, origin, address)
    assert (refused and refused[0]) == status


class _Connection(asyncio.Protocol):
    closed = False

    def force_close(self) -> None:
        self.closed = True


class _Server:
    def __init__(self) -> None:
        self.connections: list[_Connection] = []

    def __call__(self) -> _Connection:
        self.connections.append(_Connection())
        return self.connections[-1]


def test_the_oldest_idle_connection_is_closed_and_a_busy_one_stays() -> None:
    server = _Server()
    busy: set[object] = set()
    connect = BoundedConnections(server, 3, busy)
    first, second, third = connect(), connect(), connect()
    busy.add(first)
    connect()
    assert [each.closed for each in server.connections] == [False, True, False, False]
    server.connections.remove(second)  # type: ignore[arg-type]
    busy.update(server.connections)
    assert isinstance(connect(), Refusal)
    assert not third.closed  # type: ignore[attr-defined]
