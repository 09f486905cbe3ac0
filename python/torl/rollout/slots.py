"""How many episodes are sampled at once."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Episodes that wait for a tool make room for others, and with a slow tool nearly all may wait: at most so many times
# the number of those sampled at once have begun.
_BEGUN_FACTOR = 4
# A thousand episodes that all begin in one turn of the event loop would hold it up for a fifth of a second.
_BATCH_SIZE = 32


class EpisodeSlots:
    """Keeps `limit` episodes being sampled, from whatever sources there are; the first source comes first.

    A source is a function that begins one episode and returns False when it has none left. It is called whenever there
    is room: because an episode ended, or because one waits for its tool and the engine could do something else.
    """

    def __init__(self, limit: int = 1024) -> None:
        if limit < 1:
            raise ValueError("at least one episode must be sampled at once")
        self._limit = limit
        self._sampling = 0
        self._waiting = 0
        self._sources: deque[Callable[[], bool]] = deque()
        self._continues = False  # in the next turn of the event loop

    @property
    def sampling(self) -> int:
        """Episodes being sampled now."""
        return self._sampling

    def add(self, source: Callable[[], bool]) -> None:
        """Begin episodes of `source` when those before it have no more."""
        self._sources.append(source)
        self._fill()

    def remove(self, source: Callable[[], bool]) -> None:
        """Begin no more episodes of `source`."""
        if source in self._sources:
            self._sources.remove(source)

    def begin(self) -> None:
        """An episode begins; called by a source for each that it begins."""
        self._sampling += 1

    def end(self) -> None:
        """An episode has ended."""
        self._sampling -= 1
        self._fill()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """While an episode waits for its tool. It continues at once after that, even if another took its place."""
        self._sampling -= 1
        self._waiting += 1
        self._fill()
        try:
            yield
        finally:
            self._sampling += 1
            self._waiting -= 1

    def _fill(self) -> None:
        if self._continues:
            return
        for _ in range(_BATCH_SIZE):
            if not self._has_room():
                return
            if not (source := self._sources[0])():
                self.remove(source)
        self._continues = True
        asyncio.get_running_loop().call_soon(self._continue)

    def _continue(self) -> None:
        self._continues = False
        self._fill()

    def _has_room(self) -> bool:
        return (
            bool(self._sources)
            and self._sampling < self._limit
            and self._sampling + self._waiting < _BEGUN_FACTOR * self._limit
        )
