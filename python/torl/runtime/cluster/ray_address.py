"""Whether a Ray cluster can be where a configuration says: Ray looks for over a minute, and then ends the process."""

import asyncio
import os
from urllib.parse import urlsplit

from torl.errors import ClusterError

_SECONDS = 10.0
START_RAY_HINT = (
    "start one with `ray start --head`, set RAY_AUTH_MODE=token where it asks for a token, or set cluster.address "
    "to 'local'"
)


async def require_listener(address: str) -> None:
    """Raise ClusterError if nothing listens at an address. "auto" is what RAY_ADDRESS says, or Ray finds it itself."""
    named = "cluster.address"
    if address == "auto" and "RAY_ADDRESS" in os.environ:
        named, address = "RAY_ADDRESS", os.environ["RAY_ADDRESS"]
    if address in ("auto", "local"):
        return
    try:
        place = urlsplit(address if "://" in address else f"//{address}")
        host, port = place.hostname, place.port
    except ValueError:
        host = port = None
    if host is None or port is None:
        raise ClusterError(f"{named} = {address!r} is neither 'auto' nor 'local' nor HOST:PORT of a Ray head")
    try:
        async with asyncio.timeout(_SECONDS):
            _, connection = await asyncio.open_connection(host, port)
    except TimeoutError:
        raise ClusterError(
            f"nothing answered at {named} = {address!r} in {_SECONDS:g} seconds; {START_RAY_HINT}"
        ) from None
    except OSError as error:
        raise ClusterError(
            f"nothing listens at {named} = {address!r} ({error.strerror or error}); {START_RAY_HINT}"
        ) from error
    connection.close()
