"""Protection of HTTP servers without authentication: from web pages, and from unused connections."""

import asyncio
import logging
from collections.abc import Container
from ipaddress import ip_address
from typing import Any, cast
from urllib.parse import urlsplit


def refusal(host: str | None, origin: str | None, address: str) -> tuple[int, str] | None:
    """Return the status and the reason to refuse a request that may come from a web page, or None.

    A browser sends the requests of any page to any address, and opens WebSockets to it. It names the page in `Origin`.
    A page whose name resolves to a local address (DNS rebinding) shows in `Host`.

    Args:
        host: Header `Host` of the request.
        origin: Header `Origin` of the request.
        address: IP address that the server listens on. `Host` is checked if it is a loopback address.
    """
    local = is_loopback(address)
    if local and host is not None and not is_loopback(_hostname(host)):
        return 421, f"Host: {host!r} is not a name of this machine, and the server listens on {address}"
    if origin is not None and not _is_own_page(origin, host, local=local):
        return 403, f"Origin: requests of the page {origin!r} are refused"
    return None


def is_loopback(name: str) -> bool:
    """Whether a host name or an IP address is a loopback address of this machine."""
    try:
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False


def _is_own_page(origin: str, host: str | None, *, local: bool) -> bool:
    authority = origin.partition("://")[2]
    return authority == host or (local and is_loopback(_hostname(authority)))


def _hostname(authority: str) -> str:
    """Return the host of "host:port", or "" if it is missing or invalid."""
    try:
        return urlsplit(f"//{authority}").hostname or ""
    except ValueError:
        return ""


def log_no_malformed_requests() -> None:
    """Keep malformed requests out of the log of aiohttp's servers. Clients could fill it with tracebacks."""
    from aiohttp.http_exceptions import HttpProcessingError
    from aiohttp.log import server_logger
    from aiohttp.web import RequestPayloadError

    def is_server_problem(record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError | RequestPayloadError))

    server_logger.addFilter(is_server_problem)


class BoundedConnections:
    """A protocol factory of asyncio that keeps the number of connections of an aiohttp server below a maximum.

    Above the maximum, a new connection replaces the oldest idle one, or is closed if all are busy.
    """

    def __init__(self, server: Any, maximum: int, busy: Container[object]) -> None:
        """Set the maximum.

        Args:
            server: `web.Server` of aiohttp.
            maximum: Maximum number of connections.
            busy: Connections with a pending request.
        """
        self._server = server
        self._maximum = maximum
        self._busy = busy

    def __call__(self) -> asyncio.BaseProtocol:
        """Make the protocol of a new connection."""
        excess = len(self._server.connections) + 1 - self._maximum
        if excess > 0:
            idle = [each for each in self._server.connections if each not in self._busy]
            for each in idle[:excess]:
                each.force_close()
            if len(idle) < excess:
                return Refusal()
        protocol: asyncio.BaseProtocol = self._server()
        return protocol


class Refusal(asyncio.Protocol):
    """The protocol of a connection that is closed immediately."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close the connection."""
        cast(asyncio.Transport, transport).abort()
