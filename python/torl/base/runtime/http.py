"""Requests to HTTP servers, with protection from replies that are too large, or far larger when decompressed."""

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from torl_sandbox.servers.http import compression

if TYPE_CHECKING:
    import aiohttp
    import httpx2

MAX_REPLY_BYTES: Final = 64 << 20
"""Maximum size of the reply of a server."""

PLAIN_REPLIES: Final = MappingProxyType({"Accept-Encoding": "identity"})
"""Headers of a client that asks for replies without compression."""


def client_session(**options: Any) -> "aiohttp.ClientSession":
    """Return a client session that asks for plain replies, for `read_reply`, with further options of aiohttp."""
    import aiohttp

    return aiohttp.ClientSession(auto_decompress=False, headers=PLAIN_REPLIES, **options)


def require_plain(response: "httpx2.Response") -> None:
    """Check a response of httpx before its body is read.

    Raises:
        httpx2.DecodingError: The body is compressed.
    """
    from httpx2 import DecodingError

    if encoding := compression(response.headers.get_list("Content-Encoding")):
        raise DecodingError(_not_accepted(encoding), request=response.request)


async def read_reply(response: "aiohttp.ClientResponse", max_bytes: int = MAX_REPLY_BYTES) -> bytes:
    """Return the body of a reply.

    Args:
        response: Response of a `client_session`.
        max_bytes: Maximum size of the body.

    Raises:
        aiohttp.ClientError: The body is compressed, too large or incomplete.
    """
    from aiohttp import ClientPayloadError

    if encoding := compression(response.headers.getall("Content-Encoding", [])):
        raise ClientPayloadError(_not_accepted(encoding))
    body = bytearray()
    async for part in response.content.iter_any():
        body += part
        if len(body) > max_bytes:
            raise ClientPayloadError(f"the reply has more than {max_bytes} bytes")
    return bytes(body)


def _not_accepted(encoding: str) -> str:
    return f"the reply has the Content-Encoding {encoding!r}, which was not accepted"
