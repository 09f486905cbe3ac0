"""The tools as one episode sees them, and calls that begin before they are asked for."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from torl.rollout.clean_text import clean_outcome
from torl.tools import BaseTool, ToolSession
from torl.types import Outcome, OutcomeStatus, ToolRequest


@dataclass(slots=True)
class CallCounters:
    """What became of the calls that began early, over all episodes."""

    speculated: int = 0
    wasted: int = 0  # of those: never asked for


@dataclass(frozen=True, slots=True)
class TimedOutcome:
    """The outcome of a call, and when it was there (`time.perf_counter`)."""

    outcome: Outcome
    time: float


@dataclass(slots=True)
class _ToolCalls:
    """Calls of one tool in one session, in their order."""

    session: ToolSession
    requests: list[ToolRequest] = field(default_factory=list)
    tasks: "list[asyncio.Task[TimedOutcome]]" = field(default_factory=list)
    is_stateless: bool = False  # from one call to the next

    def __post_init__(self) -> None:
        self.is_stateless = self.session.fork() is self.session

    def add(self, request: ToolRequest) -> None:
        """Begin a call: at once where the session keeps nothing, else behind those before it."""
        before = None if self.is_stateless or not self.tasks else self.tasks[-1]
        self.requests.append(request)
        self.tasks.append(asyncio.ensure_future(_answered(self.session, request, before)))


class EpisodeTools:
    """Makes the calls of one episode, each in the episode's own session of its tool.

    Calls that begin early work in a fork of the session, which becomes the episode's only if their outcomes are asked
    for.
    """

    def __init__(
        self,
        tools: Mapping[str, BaseTool],
        *,
        seed: int,
        counters: CallCounters | None = None,
        others: Iterable[str] = (),
    ) -> None:
        """`seed` is that of every session; equal for all episodes of a problem. `others` can be called besides."""
        self._tools = tools
        self._names = (*tools, *others)
        self._seed = seed
        self._counters = counters or CallCounters()
        self._sessions: dict[str, ToolSession] = {}
        self._early: dict[str, _ToolCalls] = {}

    def speculate(self, request: ToolRequest, *, replaces: bool = True) -> None:
        """Begin a call that may or may not be asked for, if its tool allows it.

        `instead`: of those begun before, which are given up; otherwise all of them may be asked for, in this order.
        """
        tool = self._tools.get(request.tool)
        if tool is None or not tool.speculative:
            return
        if replaces and self._early:
            if [each.requests for each in self._early.values()] == [[request]]:
                return
            self._give_up(list(self._early))
        if request.tool not in self._early:
            self._early[request.tool] = _ToolCalls(self._session(request.tool).fork())
        self._counters.speculated += 1
        self._early[request.tool].add(request)

    async def call(self, requests: Sequence[ToolRequest]) -> list[TimedOutcome]:
        """The outcomes of the calls of a turn, in their order; what one did to its session is what the next one finds.

        Calls of several tools run side by side, and so do those of one tool whose session keeps nothing.

        Raises:
            TorlError: the host is broken.
        """
        numbers: defaultdict[str, list[int]] = defaultdict(list)
        for number, request in enumerate(requests):
            numbers[request.tool].append(number)
        self._give_up(set(self._early) - set(numbers))
        tasks: dict[int, asyncio.Task[TimedOutcome]] = {}
        for tool, own in numbers.items():
            tasks.update(zip(own, self._calls(tool, [requests[number] for number in own]), strict=True))
        try:
            # Who cancels this cancels the calls as well.
            return list(await asyncio.gather(*(tasks[number] for number in range(len(requests)))))
        finally:
            for task in tasks.values():
                task.cancel()  # where another has found the host broken

    async def close(self) -> None:
        """Give up calls that nobody asked for; when this returns they have ended."""
        await asyncio.gather(*self._give_up(list(self._early)), return_exceptions=True)

    def _calls(self, tool: str, requests: list[ToolRequest]) -> "list[asyncio.Task[TimedOutcome]]":
        """The calls of one tool, begun; those that began early have to be the first of them."""
        if tool not in self._tools:
            return [asyncio.ensure_future(_unknown(tool, self._names)) for _ in requests]
        if tool in self._early and self._early[tool].requests != requests[: len(self._early[tool].requests)]:
            self._give_up([tool])
        calls = self._early.pop(tool, None) or _ToolCalls(self._session(tool))
        self._sessions[tool] = calls.session
        for request in requests[len(calls.requests) :]:
            calls.add(request)
        return calls.tasks

    def _session(self, tool: str) -> ToolSession:
        if tool not in self._sessions:
            self._sessions[tool] = self._tools[tool].session(self._seed)
        return self._sessions[tool]

    def _give_up(self, tools: Iterable[str]) -> "list[asyncio.Task[TimedOutcome]]":
        """Cancel what began early of these tools."""
        given_up = [task for tool in tools for task in self._early.pop(tool).tasks]
        self._counters.wasted += len(given_up)
        for task in given_up:
            task.cancel()
            task.add_done_callback(_look_at)
        return given_up


async def _answered(
    session: ToolSession, request: ToolRequest, before: "asyncio.Task[TimedOutcome] | None" = None
) -> TimedOutcome:
    if before is not None:
        await asyncio.wait([before])
    outcome = clean_outcome(await session.call(request.arguments))
    return TimedOutcome(outcome, time.perf_counter())


async def _unknown(tool: str, tools: Iterable[str]) -> TimedOutcome:
    text = f"there is no tool {tool!r}, only {', '.join(tools)}"
    return TimedOutcome(Outcome(OutcomeStatus.ERROR, text, "UnknownTool"), time.perf_counter())


def _look_at(task: "asyncio.Task[TimedOutcome]") -> None:
    """A host that broke will break the next call as well; here nobody asked."""
    if not task.cancelled():
        task.exception()
