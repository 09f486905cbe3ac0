"""The limits that calls of any tool have, and what becomes of a call that gets no outcome within them."""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from torl.errors import ToolUnavailableError
from torl.options import Choice, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, Section
from torl.runtime.processes.supervision import is_cancelled
from torl.tools.base import BaseTool, ToolSession
from torl.tools.wrapped import WrappedTool
from torl.types import Outcome

_MAX_PAUSE = 30.0  # seconds
CUT = "..."
"""Stands for what is cut off."""


class ToolLimits(Section):
    """Options of every tool that has no limits of its own."""

    timeout_seconds: PositiveFloat = 60.0
    """Time one try of a call may take."""
    retries: NonNegativeInt = 3
    """How often a call is tried again that took too long or found the tool unavailable, before its episode is given up
    and left out of its group."""
    initial_backoff_seconds: NonNegativeFloat = 0.5
    """Pause before the first retry, in seconds; each further one is twice as long, up to 30 s."""
    max_result_characters: PositiveInt = 20_000
    """What a result has beyond this is cut off, and "..." put in its place."""
    max_concurrent: PositiveInt = 256
    """Calls at once; others wait, and their time does not count meanwhile."""


def pause_before_retry(first_seconds: float, attempt: int) -> float:
    """Seconds to wait after attempt 0, 1, ...: twice as long each time, and not for all who wait at once."""
    return min(first_seconds * float(2**attempt) * random.uniform(0.5, 1), _MAX_PAUSE)


def tool_limits(target: Any) -> type[ToolLimits] | None:
    """The bounds that a tool's section may set; None for a tool that bounds itself."""
    return None if getattr(target, "has_own_limits", False) else ToolLimits


def make_tool(name: str, choice: Choice[BaseTool]) -> BaseTool:
    """The tool that a section of the configuration chose, within its bounds. `name` is the section's key."""
    tool = choice.make()
    return BoundedTool(name, tool, choice.common_options) if isinstance(choice.common_options, ToolLimits) else tool


@dataclass(slots=True)
class _Counts:
    calls: int = 0
    retried: int = 0
    unavailable: int = 0  # calls that were given up
    cut: int = 0  # results that were too long


class BoundedTool(WrappedTool):
    """Calls another tool: not too many at once, each for a limited time, again where it gave no outcome.

    Each try is made in a fork of the session, which becomes the session if it gave an outcome: a try that was given up
    leaves nothing behind in it.
    """

    def __init__(self, name: str, tool: BaseTool, bounds: ToolLimits, slots: asyncio.Semaphore | None = None) -> None:
        """Bound `tool`, which messages call `name`; its calls share `slots`, where they are given, with others'."""
        super().__init__(tool)
        self.name, self.bounds = name, bounds
        self._counts = _Counts()
        self._slots = slots or asyncio.Semaphore(bounds.max_concurrent)

    def session(self, seed: int) -> ToolSession:
        """The tool's own session, within the bounds."""
        return _BoundedSession(self, self.tool.session(seed))

    def provided_tools(self, name: str) -> Mapping[str, BaseTool]:
        """What the tool itself offers, within the same bounds; all together make so many calls at once."""
        offered = self.tool.provided_tools(name)
        others = {each: BoundedTool(each, tool, self.bounds, self._slots) for each, tool in offered.items()}
        return {each: self if tool is self.tool else others[each] for each, tool in offered.items()}

    async def call(self, session: ToolSession, arguments: Mapping[str, Any]) -> tuple[Outcome, ToolSession]:
        """The outcome of a call in a fork of `session`, and that fork.

        Raises:
            ToolUnavailableError: there was none, however often the tool was asked.
        """
        bounds, counts = self.bounds, self._counts
        counts.calls += 1
        async with self._slots:
            for attempt in range(bounds.retries + 1):
                try:
                    return await self._try(session.fork(), arguments)
                except ToolUnavailableError as error:
                    if attempt == bounds.retries:
                        counts.unavailable += 1
                        tries = f"{attempt + 1} tries" if attempt else "one try"
                        raise ToolUnavailableError(
                            f"the tool {self.name!r} gave no outcome in {tries}; the last: {error}"
                        ) from error
                    await asyncio.sleep(pause_before_retry(bounds.initial_backoff_seconds, attempt))
                counts.retried += 1
        raise AssertionError("unreachable")

    async def _try(self, session: ToolSession, arguments: Mapping[str, Any]) -> tuple[Outcome, ToolSession]:
        limit = self.bounds.timeout_seconds
        try:
            async with asyncio.timeout(limit) as deadline:
                return self._cut(await session.call(arguments)), session
        except TimeoutError as error:
            if not deadline.expired():  # the tool's own
                raise
            raise ToolUnavailableError(f"no answer within {limit:g} s (timeout_seconds)") from error
        except asyncio.CancelledError as error:
            if is_cancelled():
                raise
            raise ToolUnavailableError("the tool cancelled the call itself") from error

    def _cut(self, outcome: Outcome) -> Outcome:
        limit = self.bounds.max_result_characters
        if len(outcome.text) <= limit:
            return outcome
        self._counts.cut += 1
        return replace(outcome, text=outcome.text[:limit] + CUT)

    def metrics(self) -> Mapping[str, float]:
        """The tool's own counts, and of its calls: all, tries after the first, given up, cut."""
        counts = self._counts
        own = {"calls": counts.calls, "retried": counts.retried}
        return {**own, "unavailable": counts.unavailable, "cut": counts.cut, **self.tool.metrics()}


@dataclass(slots=True)
class _BoundedSession(ToolSession):
    bounded: BoundedTool
    session: ToolSession

    async def call(self, arguments: Mapping[str, Any]) -> Outcome:
        outcome, self.session = await self.bounded.call(self.session, arguments)
        return outcome

    def fork(self) -> Self:
        forked = self.session.fork()
        return self if forked is self.session else type(self)(self.bounded, forked)
