"""Noticing an engine that lives and computes nothing: a device that hangs, a process that was stopped."""

import asyncio
import logging
from collections.abc import Callable, Sequence

_logger = logging.getLogger(__name__)
_WARNING_SHARE = 5  # a warning comes after this part of the limit
_LOOKS = 20  # in the time of the limit, one second apart at most


class StallWatch:
    """How long each of some engines side by side has been silent although it holds requests."""

    def __init__(self, engines: int, limit_seconds: float) -> None:
        self._silent = [0.0] * engines
        self._limit = limit_seconds

    def step(self, engine: int) -> None:
        """The engine has computed."""
        self._silent[engine] = 0.0

    async def wait(self, open_requests: Callable[[], Sequence[int]]) -> str:
        """Wait until an engine has been silent for the limit; says so. Warns before, once in each silence.

        `open_requests` gives how many requests each engine should be working on now. Time is counted in looks, so that
        a controller that was itself stopped, or busy, for long blames nobody.
        """
        pause = min(1.0, self._limit / _LOOKS)
        while True:
            await asyncio.sleep(pause)
            for engine, requests in enumerate(open_requests()):
                if requests == 0:
                    self._silent[engine] = 0.0
                    continue
                before = self._silent[engine]
                self._silent[engine] += pause
                silence = f"no token came for {self._silent[engine]:.0f} s although {requests} requests are open"
                if before < self._limit / _WARNING_SHARE <= self._silent[engine]:
                    _logger.warning("%s; the engine is given up after %g s (stall_seconds)", silence, self._limit)
                if self._silent[engine] >= self._limit:
                    return silence
