"""Noticing an engine that lives and computes nothing: a device that hangs, a process that was stopped."""

import asyncio
import logging
from collections.abc import Callable

_logger = logging.getLogger(__name__)
_WARNING_SHARE = 5  # a warning comes after this part of the limit
_POLLS = 20  # in the time of the limit, one second apart at most


class StallWatch:
    """How long an engine has been silent although something is expected of it."""

    def __init__(self, limit_seconds: float) -> None:
        self._silent = 0.0
        self._limit = limit_seconds

    def step(self) -> None:
        """The engine has computed."""
        self._silent = 0.0

    async def wait(self, awaited: Callable[[], str | None]) -> str:
        """Wait until the engine has been silent for the limit; says so. Warns before, once in each silence.

        `awaited` says what it should be working on now; None where nothing is expected of it. Time is counted in
        looks, so that a controller that was itself stopped, or busy, for long blames nobody.
        """
        pause = min(1.0, self._limit / _POLLS)
        while True:
            await asyncio.sleep(pause)
            expected = awaited()
            if expected is None:
                self._silent = 0.0
                continue
            before = self._silent
            self._silent += pause
            silence = f"no token came for {self._silent:.0f} s although {expected}"
            if before < self._limit / _WARNING_SHARE <= self._silent:
                _logger.warning("%s; the engine is given up after %g s (stall_timeout_seconds)", silence, self._limit)
            if self._silent >= self._limit:
                return silence
