"""The tool calls of one episode, some of which start speculatively."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torl.base.runtime.processes.hangs import PendingCalls
from torl.base.types import Outcome, OutcomeStatus, Problem, ToolRequest
from torl.components.text.templates import Messages
from torl.components.tools import BaseTool, ToolSession


@dataclass(slots=True)
class CallCounters:
    """Counts of speculative calls over all episodes."""

    speculated: int = 0
    wasted: int = 0
    """Speculative calls that the model never requested."""


@dataclass(frozen=True, slots=True)
class TimedOutcome:
    """The outcome of a call."""

    outcome: Outcome
    time: float
    """Time of its arrival (`time.perf_counter`)."""


@dataclass(slots=True)
class _ToolCalls:
    """Ordered calls of one tool in one session."""

    session: ToolSession
    open_calls: PendingCalls
    requests: list[ToolRequest] = field(default_factory=list)
    tasks: "list[asyncio.Task[TimedOutcome]]" = field(default_factory=list)
    is_stateless: bool = False

    def __post_init__(self) -> None:
        self.is_stateless = self.session.fork() is self.session

    def add(self, request: ToolRequest) -> None:
        """Start a call: at once if the session is stateless, else after the calls before it."""
        before = None if self.is_stateless or not self.tasks else self.tasks[-1]
        self.requests.append(request)
        self.tasks.append(asyncio.ensure_future(self._call(request, before)))

    async def _call(self, request: ToolRequest, before: "asyncio.Task[TimedOutcome] | None") -> TimedOutcome:
        if before is not None:
            await asyncio.wait([before])
        with self.open_calls.open(f"the tool {request.tool!r}"):
            outcome = clean_outcome(await self.session.call(request.arguments))
        return TimedOutcome(outcome, time.perf_counter())


class EpisodeTools:
    """Executes the calls of one episode, each in the episode's session of its tool.

    Speculative calls run in a fork of the session, which becomes the episode's session only if the calls are requested.
    """

    def __init__(
        self,
        tools: Mapping[str, BaseTool],
        *,
        seed: int,
        problem: Problem | None = None,
        counters: CallCounters | None = None,
        open_calls: PendingCalls | None = None,
        other_tools: Iterable[str] = (),
    ) -> None:
        """Make the calls of an episode.

        Args:
            tools: The tools by name.
            seed: Seed of every session, equal for all episodes of a problem.
            problem: Problem of the episode, for tools that need it.
            counters: Counters of speculative calls.
            open_calls: Register of pending calls, for the detection of hangs.
            other_tools: Names of tools that are called elsewhere, for error messages.
        """
        self._tools = tools
        self._names = (*tools, *other_tools)
        self._seed = seed
        self._problem = problem
        self._counters = counters or CallCounters()
        self._open_calls = open_calls or PendingCalls()
        self._sessions: dict[str, ToolSession] = {}
        self._early: dict[str, _ToolCalls] = {}

    def speculate(self, request: ToolRequest, *, replaces: bool = True) -> None:
        """Start a call that may or may not be requested, if its tool allows it.

        Args:
            request: The call.
            replaces: Whether to cancel earlier speculative calls. Otherwise all may be requested, in this order.
        """
        tool = self._tools.get(request.tool)
        if tool is None or not tool.speculative:
            return
        if replaces and self._early:
            if [each.requests for each in self._early.values()] == [[request]]:
                return
            self._cancel(list(self._early))
        if request.tool not in self._early:
            self._early[request.tool] = _ToolCalls(self._session(request.tool).fork(), self._open_calls)
        self._counters.speculated += 1
        self._early[request.tool].add(request)

    async def call(self, requests: Sequence[ToolRequest]) -> list[TimedOutcome]:
        """Execute the calls of a turn in order; return their outcomes. Calls of a tool share its session.

        Calls of different tools run concurrently, and so do calls of one tool with a stateless session.

        Raises:
            TorlError: The host failed.
        """
        numbers: defaultdict[str, list[int]] = defaultdict(list)
        for number, request in enumerate(requests):
            numbers[request.tool].append(number)
        self._cancel(set(self._early) - set(numbers))
        tasks: dict[int, asyncio.Task[TimedOutcome]] = {}
        for tool, places in numbers.items():
            tasks.update(zip(places, self._calls(tool, [requests[number] for number in places]), strict=True))
        try:
            # Cancelling this method cancels the calls as well.
            return list(await asyncio.gather(*(tasks[number] for number in range(len(requests)))))
        finally:
            for task in tasks.values():
                task.cancel()  # if another call failed

    async def close(self) -> None:
        """Cancel calls that were not requested, and wait until they have ended."""
        await asyncio.gather(*self._cancel(list(self._early)), return_exceptions=True)

    def _calls(self, tool: str, requests: list[ToolRequest]) -> "list[asyncio.Task[TimedOutcome]]":
        """Start the calls of one tool, or reuse its speculative calls if they are the first of these."""
        if tool not in self._tools:
            return [asyncio.ensure_future(_unknown(tool, self._names)) for _ in requests]
        if tool in self._early and self._early[tool].requests != requests[: len(self._early[tool].requests)]:
            self._cancel([tool])
        calls = self._early.pop(tool, None) or _ToolCalls(self._session(tool), self._open_calls)
        self._sessions[tool] = calls.session
        for request in requests[len(calls.requests) :]:
            calls.add(request)
        return calls.tasks

    def _session(self, tool: str) -> ToolSession:
        if tool not in self._sessions:
            found, problem = self._tools[tool], self._problem
            session = found.session(self._seed) if problem is None else found.problem_session(problem, self._seed)
            self._sessions[tool] = session
        return self._sessions[tool]

    def _cancel(self, tools: Iterable[str]) -> "list[asyncio.Task[TimedOutcome]]":
        """Cancel the speculative calls of these tools."""
        cancelled = [task for tool in tools for task in self._early.pop(tool).tasks]
        self._counters.wasted += len(cancelled)
        for task in cancelled:
            task.cancel()
            task.add_done_callback(_retrieve_exception)
        return cancelled


async def _unknown(tool: str, tools: Iterable[str]) -> TimedOutcome:
    text = f"there is no tool {tool!r}, only {', '.join(tools)}"
    return TimedOutcome(Outcome(OutcomeStatus.ERROR, text, "UnknownTool"), time.perf_counter())


def _retrieve_exception(task: "asyncio.Task[TimedOutcome]") -> None:
    """Retrieve the exception of a cancelled call. A failed host makes the next call fail as well."""
    if not task.cancelled():
        task.exception()


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which tokenizers reject, by U+FFFD. JSON and file names may contain them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text  # the same object, because outcomes contain long outputs twice


def clean_outcome(outcome: Outcome) -> Outcome:
    """Replace lone surrogates in all texts of an outcome."""
    error = None if outcome.error is None else replace_surrogates(outcome.error)
    return replace(outcome, text=replace_surrogates(outcome.text), error=error, details=_clean_texts(outcome.details))


def clean_messages(messages: Messages) -> Sequence[dict[str, Any]]:
    """Replace lone surrogates in all texts of messages. Other values, such as calls, are for the chat template."""
    return [_clean_texts(message) for message in messages]


def _clean_texts(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: replace_surrogates(value) if isinstance(value, str) else value for name, value in values.items()}
