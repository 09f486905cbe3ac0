"""Slots that limit the number of concurrent episodes."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Maximum number of started episodes, as a multiple of the concurrency limit. With a slow tool, nearly all started
# episodes wait for it.
_MAX_STARTED_FACTOR = 4
# Starting a thousand episodes in one iteration of the event loop would block it for a fifth of a second.
_BATCH_SIZE = 32


class EpisodeSlots:
    """Keeps up to `limit` episodes sampling, taken from sources in order.

    A source is a function that starts one episode, or returns False if it has no more. It is called when an episode
    ends, or waits for its tool so that the engine has capacity.
    """

    def __init__(self, limit: int = 1024) -> None:
        """Set the concurrency limit, which is at least 1."""
        if limit < 1:
            raise ValueError("at least one episode must be sampled at once")
        self._limit = limit
        self._sampling = 0
        self._waiting = 0
        self._sources: deque[Callable[[], bool]] = deque()
        self._is_scheduled = False  # whether `_continue` runs in the next iteration of the event loop

    @property
    def sampling(self) -> int:
        """Number of episodes that are sampling."""
        return self._sampling

    def add(self, source: Callable[[], bool]) -> None:
        """Start episodes of `source` once the earlier sources have no more."""
        self._sources.append(source)
        self._fill()

    def remove(self, source: Callable[[], bool]) -> None:
        """Start no more episodes of `source`."""
        if source in self._sources:
            self._sources.remove(source)

    def begin(self) -> None:
        """Count an episode that starts. Sources call this for each."""
        self._sampling += 1

    def end(self) -> None:
        """Count an episode that has ended."""
        self._sampling -= 1
        self._fill()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Free the slot of an episode while it waits for its tool. Afterwards it continues at once, above the limit."""
        self._sampling -= 1
        self._waiting += 1
        self._fill()
        try:
            yield
        finally:
            self._sampling += 1
            self._waiting -= 1

    def _fill(self) -> None:
        if self._is_scheduled:
            return
        for _ in range(_BATCH_SIZE):
            if not self._has_room():
                return
            if not (source := self._sources[0])():
                self.remove(source)
        self._is_scheduled = True
        asyncio.get_running_loop().call_soon(self._continue)

    def _continue(self) -> None:
        self._is_scheduled = False
        self._fill()

    def _has_room(self) -> bool:
        return (
            bool(self._sources)
            and self._sampling < self._limit
            and self._sampling + self._waiting < _MAX_STARTED_FACTOR * self._limit
        )
