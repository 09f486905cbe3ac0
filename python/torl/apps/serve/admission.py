"""How much a door holds at once: what is beyond is refused when it comes, and what was accepted is answered."""

from collections.abc import Iterator
from contextlib import contextmanager


class OverloadedError(Exception):
    """The door holds as much as it may; says of what."""


class Admission:
    """Counts what was accepted and is not answered yet. For one event loop."""

    def __init__(self, max_requests: int, max_bytes: int) -> None:
        """`most_bytes` bounds the bodies of all accepted requests together."""
        self._max_requests = max_requests
        self._max_bytes = max_bytes
        self.requests = 0
        """Accepted and not answered."""
        self.bytes = 0
        """Of their bodies."""
        self.refused = 0
        """Since the start."""

    @contextmanager
    def admit(self, body_bytes: int) -> Iterator[None]:
        """Accept a request with a body of so many bytes, for as long as the block runs.

        Raises:
            OverloadedError: there are as many requests, or bytes, as there may be.
        """
        if self.requests >= self._max_requests:
            self.refused += 1
            raise OverloadedError(f"{self.requests} requests are being answered, which is as many as may be")
        if self.requests and self.bytes + body_bytes > self._max_bytes:  # a body alone has a limit of its own
            self.refused += 1
            raise OverloadedError(f"{self.bytes} bytes of requests are being answered, no room for {body_bytes} more")
        self.requests += 1
        self.bytes += body_bytes
        try:
            yield
        finally:
            self.requests -= 1
            self.bytes -= body_bytes
