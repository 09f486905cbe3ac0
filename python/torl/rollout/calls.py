"""The tools as one episode sees them, and calls that begin before they are asked for."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from torl.tools import Tool, ToolSession
from torl.types import Outcome, OutcomeStatus, ToolRequest


@dataclass(slots=True)
class CallCounters:
    """What became of the calls that began early, over all episodes."""

    speculated: int = 0
    wasted: int = 0  # of those: never asked for


@dataclass(frozen=True, slots=True)
class _EarlyCall:
    request: ToolRequest
    session: ToolSession  # a fork, which becomes the episode's if the call is asked for
    task: asyncio.Task[Outcome]


class EpisodeTools:
    """Makes the calls of one episode, each in the episode's own session of its tool.

    A call that begins early works in a fork of the session, which becomes the episode's only if its outcome is asked
    for.
    """

    def __init__(self, tools: Mapping[str, Tool], *, seed: int, counters: CallCounters | None = None) -> None:
        """`seed` is that of every session; equal for all episodes of a problem."""
        self._tools = tools
        self._seed = seed
        self._counters = counters or CallCounters()
        self._sessions: dict[str, ToolSession] = {}
        self._early: _EarlyCall | None = None

    def begin(self, request: ToolRequest) -> None:
        """Begin a call that may or may not be asked for, if its tool allows it. One begun before is given up."""
        tool = self._tools.get(request.tool)
        if tool is None or not tool.starts_early:
            return
        if self._early is not None:
            if self._early.request == request:
                return
            self._give_up()
        self._counters.speculated += 1
        session = self._session(request.tool).fork()
        self._early = _EarlyCall(request, session, asyncio.ensure_future(session.call(request.arguments)))

    async def call(self, request: ToolRequest) -> Outcome:
        """The outcome of a call, begun early or not; what it did to the session is what the next call finds.

        Raises:
            TorlError: the host is broken.
        """
        if request.tool not in self._tools:
            known = ", ".join(self._tools)
            return Outcome(OutcomeStatus.ERROR, f"there is no tool {request.tool!r}, only {known}", "UnknownTool")
        if self._early is None or self._early.request != request:
            self._give_up()
            return await self._session(request.tool).call(request.arguments)
        early, self._early = self._early, None
        outcome = await early.task  # who cancels this cancels the task as well
        self._sessions[request.tool] = early.session
        return outcome

    async def close(self) -> None:
        """Give up a call that nobody asked for; when this returns it has ended."""
        if (early := self._give_up()) is not None:
            await asyncio.gather(early.task, return_exceptions=True)

    def _session(self, tool: str) -> ToolSession:
        if tool not in self._sessions:
            self._sessions[tool] = self._tools[tool].session(self._seed)
        return self._sessions[tool]

    def _give_up(self) -> _EarlyCall | None:
        early, self._early = self._early, None
        if early is not None:
            self._counters.wasted += 1
            early.task.cancel()
            early.task.add_done_callback(_look_at)
        return early


def _look_at(task: asyncio.Task[Outcome]) -> None:
    """A host that broke will break the next call as well; here nobody asked."""
    if not task.cancelled():
        task.exception()
