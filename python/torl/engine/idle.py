"""How long an engine has had nothing to do."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class IdleClock:
    """Counts the time in which no request is open, from `start` on."""

    def __init__(self) -> None:
        self._open = 0
        self._seconds = 0.0
        self._since: float | None = None  # None while it does not count

    @property
    def seconds(self) -> float:
        """The time so far."""
        return self._seconds + (0.0 if self._since is None else time.perf_counter() - self._since)

    def start(self) -> None:
        """Begin to count."""
        self._since = time.perf_counter()

    @contextmanager
    def request(self) -> Iterator[None]:
        """While a request is open."""
        self._seconds, self._since = self.seconds, None
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1
            if self._open == 0:
                self._since = time.perf_counter()
