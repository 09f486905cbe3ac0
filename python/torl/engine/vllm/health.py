"""Detection of engines that died or hang."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from torl.engine.protocol import WATCH_SECONDS

_logger = logging.getLogger(__name__)
_WARNING_FRACTION = 5  # a warning comes after this part of the timeout
_POLLS = 20  # in the time of the timeout, one second apart at most


async def fail_calls_on_engine_death(llm: Any) -> None:
    """Wait until the AsyncLLM has lost an engine, then fail every pending call of a method.

    vLLM fails the requests whose tokens it awaits. It leaves the callers of `collective_rpc`, `pause_generation` and
    similar methods waiting forever, and every request sent before the first reply to `get_supported_tasks`.
    """
    from vllm.v1.engine.exceptions import EngineDeadError

    while True:
        await asyncio.sleep(WATCH_SECONDS)
        if llm.errored:
            break
    for result in list(llm.engine_core.utility_results.values()):
        if not result.done():
            result.set_exception(EngineDeadError())


class StallWatch:
    """The time for which an engine has computed nothing despite pending work."""

    def __init__(self, timeout_seconds: float) -> None:
        self._stalled_seconds = 0.0
        self._timeout = timeout_seconds

    def step(self) -> None:
        """Record that the engine has computed."""
        self._stalled_seconds = 0.0

    async def wait(self, pending_work: Callable[[], str | None]) -> str:
        """Wait until the engine has stalled for the timeout; return a description. Each stall logs one warning first.

        Time is measured in polls, so that a stopped or busy controller causes no false alarm.

        Args:
            pending_work: Returns a description of the work that the engine should be doing, or None if it is idle.
        """
        interval = min(1.0, self._timeout / _POLLS)
        while True:
            await asyncio.sleep(interval)
            work = pending_work()
            if work is None:
                self._stalled_seconds = 0.0
                continue
            before = self._stalled_seconds
            self._stalled_seconds += interval
            stall = f"no token came for {self._stalled_seconds:.0f} s although {work}"
            if before < self._timeout / _WARNING_FRACTION <= self._stalled_seconds:
                _logger.warning("%s; the engine is stopped after %g s (stall_timeout_seconds)", stall, self._timeout)
            if self._stalled_seconds >= self._timeout:
                return stall
