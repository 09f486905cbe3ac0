"""Calls of parts that somebody else wrote, and how long they have had no answer."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from torl.errors import HangError

_POLLS = 20  # in the time of the limit, one second apart at most


class PendingCalls:
    """What this process waits for: tools, a reward."""

    def __init__(self) -> None:
        self._calls: dict[object, tuple[str, float]] = {}  # what was called, and the seconds it has been open

    @contextmanager
    def open(self, part: str) -> Iterator[None]:
        """While `part` is asked for something."""
        call = object()
        self._calls[call] = (part, 0.0)
        try:
            yield
        finally:
            del self._calls[call]

    async def watch(self, limit_seconds: float, setting: str) -> NoReturn:
        """Wait until a call has been open for the limit, then raise `HangError`; `setting` is where the limit is set.

        Time is counted in looks, so that a controller that was itself stopped, or busy, for long blames nobody.
        """
        pause = min(1.0, limit_seconds / _POLLS)
        while True:
            await asyncio.sleep(pause)
            for call, (part, seconds) in list(self._calls.items()):
                self._calls[call] = (part, seconds + pause)
                if seconds + pause >= limit_seconds:
                    raise HangError(f"{part} gave no answer within {limit_seconds:g} s ({setting})")
