"""Requests to HTTP servers, with protection from replies that are too large, or far larger when decompressed."""

from typing import TYPE_CHECKING, Any, Final

from torl_sandbox.servers.http import PLAIN

if TYPE_CHECKING:
    import aiohttp

MAX_REPLY_BYTES: Final = 64 << 20
"""Maximum size of the reply of a server."""


def client_session(**options: Any) -> "aiohttp.ClientSession":
    """Return a client session that asks for plain replies, for `read_reply`, with further options of aiohttp."""
    import aiohttp

    return aiohttp.ClientSession(auto_decompress=False, headers={"Accept-Encoding": "identity"}, **options)


async def read_reply(response: "aiohttp.ClientResponse", max_bytes: int = MAX_REPLY_BYTES) -> bytes:
    """Return the body of a reply.

    Args:
        response: Response of a `client_session`.
        max_bytes: Maximum size of the body.

    Raises:
        aiohttp.ClientError: The body is compressed, too large or incomplete.
    """
    from aiohttp import ClientPayloadError

    for encoding in response.headers.getall("Content-Encoding", []):
        if encoding.strip().lower() not in PLAIN:
            raise ClientPayloadError(f"the reply has the Content-Encoding {encoding!r}, which was not accepted")
    body = bytearray()
    async for part in response.content.iter_any():
        body += part
        if len(body) > max_bytes:
            raise ClientPayloadError(f"the reply has more than {max_bytes} bytes")
    return bytes(body)
