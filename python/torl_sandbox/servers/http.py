"""Protection of HTTP servers without authentication: from web pages, and from bodies that grow when decompressed."""

import re
from collections.abc import Container, Iterable
from functools import lru_cache
from ipaddress import ip_address
from typing import Final

_AUTHORITY: Final = re.compile(r"(?:([A-Za-z0-9._-]+)|\[([0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)\])(?::(0|[1-9][0-9]{0,4}))?")
_MAX_PORT: Final = 65535
_MAX_HEADERS: Final = 64
_PLAIN: Final = ("", "identity")  # content encodings of a body as it is


def refusal(headers: Iterable[tuple[str, str]], address: str) -> tuple[int, str] | None:
    """Return the status and the reason to refuse a request because of its headers, or None.

    A browser sends the requests of any page to any address, and opens WebSockets to it. It names the page in `Origin`.
    A page whose name resolves to a local address (DNS rebinding) shows in `Host`. A page of another port of this
    machine is accepted: the program that serves it can send requests itself.

    Compressed bodies are refused, because some KB can become some GB. So are requests with two lengths, which a proxy
    and a server read differently.

    Args:
        headers: All headers of the request, as pairs of name and value.
        address: IP address that the server listens on. `Host` is checked if it is a loopback address.
    """
    given: dict[str, list[str]] = {}
    for name, value in headers:
        given.setdefault(name.lower(), []).append(value)
    if (count := sum(map(len, given.values()))) > _MAX_HEADERS:
        return 400, f"a request has at most {_MAX_HEADERS} headers, got {count}"
    hosts, local = given.get("host", []), is_loopback(address)
    for host in hosts if local else ():
        if not is_loopback(_hostname(host)):
            return 421, f"Host: {host!r} is not a name of this machine, and the server listens on {address}"
    for origin in given.get("origin", []):
        if not _is_own_page(origin, hosts, local=local):
            return 403, f"Origin: requests of the page {origin!r} are refused"
    if "content-length" in given and "transfer-encoding" in given:
        return 400, "Content-Length: a request with Transfer-Encoding must have none"
    if encoding := compression(given.get("content-encoding", [])):
        return 415, f"Content-Encoding: {encoding!r} is refused; send the body without compression"
    return None


def compression(encodings: Iterable[str]) -> str | None:
    """Return the first value of `Content-Encoding` that is not that of a plain body, or None."""
    return next((each for each in encodings if each.strip().lower() not in _PLAIN), None)


@lru_cache(maxsize=16)  # each request names the same ones
def is_loopback(name: str) -> bool:
    """Whether a host name or an IP address is a loopback address of this machine."""
    try:
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False


def _is_own_page(origin: str, hosts: Container[str], *, local: bool) -> bool:
    scheme, _, authority = origin.partition("://")
    name = _hostname(authority)
    return scheme in ("http", "https") and name != "" and (authority in hosts or (local and is_loopback(name)))


def _hostname(authority: str) -> str:
    """Return the host of "host" or "host:port", or "" for anything else."""
    found = _AUTHORITY.fullmatch(authority)
    return (found[1] or found[2]).lower() if found and int(found[3] or 0) <= _MAX_PORT else ""
