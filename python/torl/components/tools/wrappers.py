"""Tools that wrap other tools: limits and retries, and shuffled outcomes for an ablation."""

import asyncio
import json
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any, Self

from torl.base.component import RunContext
from torl.base.errors import ComponentError, ToolUnavailableError
from torl.base.guard import describe, location
from torl.base.options import Choice, NonNegativeInt, PositiveFloat, PositiveInt, Section
from torl.base.types import Outcome, OutcomeStatus, Problem
from torl.components.tools.retry import retry
from torl.components.tools.tool import BaseTool, ToolSession, as_object

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

_MAX_SHUFFLED = 256  # outcomes that are kept
MAX_RESULT_CHARACTERS = 20_000
"""Limit on a result of a tool, which protects the prompt and the records from a server's mistake."""
TRUNCATION = "..."
"""End of a truncated text."""


class ToolLimits(Section):
    """Options of every tool that does not enforce its own limits."""

    timeout_seconds: PositiveFloat = 60.0
    """Timeout of one attempt of a call, in seconds."""
    retries: NonNegativeInt = 3
    """Maximum number of retries of a call that timed out or found the tool unavailable. After the last retry, the
    episode fails and is dropped from its group."""
    max_concurrent: PositiveInt = 256
    """Maximum number of concurrent calls. The timeout does not include the time that a call waits for its slot."""


def tool_limits(target: Any) -> type[ToolLimits] | None:
    """Return the limits that a tool's section may set; None for a tool that enforces its own limits."""
    return None if getattr(target, "has_own_limits", False) else ToolLimits


def make_tool(name: str, choice: Choice[BaseTool]) -> BaseTool:
    """Make the tool of a configuration's section, within its limits. `name` is the section's key."""
    tool = choice.make()
    return BoundedTool(name, tool, choice.common_options) if isinstance(choice.common_options, ToolLimits) else tool


class WrappedTool(BaseTool):
    """Base of the wrappers. Forwards everything except sessions to the wrapped tool."""

    def __init__(self, tool: BaseTool) -> None:
        """Wrap a tool.

        Raises:
            ComponentError: The tool lacks its description or its parameters.
        """
        for name, kind in (("description", str), ("parameters", Mapping)):
            if not isinstance(value := getattr(tool, name, None), kind):
                expected = f"expected {kind.__name__}, got {describe(value)}"
                raise ComponentError(f"the tool ({location(tool)}) needs the attribute {name!r}: {expected}")
        self.tool = tool
        self.description = tool.description
        self.parameters = tool.parameters
        self.speculative = tool.speculative

    async def start(self, context: RunContext) -> None:
        await self.tool.start(context)

    async def close(self) -> None:
        await self.tool.close()

    async def check(self) -> None:
        await self.tool.check()

    def metrics(self) -> Mapping[str, float]:
        return self.tool.metrics()


@dataclass(slots=True)
class _CallCounts:
    calls: int = 0
    retried: int = 0
    unavailable: int = 0  # calls that failed after all retries
    cut: int = 0  # truncated results


class BoundedTool(WrappedTool):
    """Enforces the limits of a tool: concurrent calls, the timeout of a call, retries, the length of a result.

    Each attempt runs in a fork of the session. The fork replaces the session if the attempt succeeds, so that a failed
    attempt leaves no trace in the session.
    """

    def __init__(self, name: str, tool: BaseTool, limits: ToolLimits, slots: asyncio.Semaphore | None = None) -> None:
        """Wrap a tool.

        Args:
            name: Name of the tool in messages.
            tool: Tool to wrap.
            limits: Limits to enforce.
            slots: Semaphore of the concurrent calls, if it is shared with other tools.
        """
        super().__init__(tool)
        self.name, self.limits = name, limits
        self._validator = None if tool.checks_arguments else _validator_of(tool)
        self._counts = _CallCounts()
        self._slots = slots or asyncio.Semaphore(limits.max_concurrent)

    def session(self, seed: int) -> ToolSession:
        with self._named():
            return _BoundedSession(self, self.tool.session(seed))

    def problem_session(self, problem: Problem, seed: int) -> ToolSession:
        with self._named():
            return _BoundedSession(self, self.tool.problem_session(problem, seed))

    def provided_tools(self, name: str) -> Mapping[str, BaseTool]:
        """Return the tools that the wrapped tool provides, within the same limits. They share the concurrent calls."""
        with self._named():
            provided = self.tool.provided_tools(name)
        others = {each: BoundedTool(each, tool, self.limits, self._slots) for each, tool in provided.items()}
        return {each: self if tool is self.tool else others[each] for each, tool in provided.items()}

    async def call(self, session: ToolSession, arguments: Mapping[str, Any]) -> tuple[Outcome, ToolSession]:
        """Call the tool in a fork of `session`, and return the outcome and the fork.

        Raises:
            ToolUnavailableError: The call failed after all retries.
        """
        self._counts.calls += 1
        if mistakes := self._mistakes(arguments):
            return self._truncate(Outcome(OutcomeStatus.ERROR, f"TypeError: {mistakes}", "TypeError")), session
        with self._named():
            async with self._slots:
                try:
                    return await retry(
                        lambda: self._attempt(session.fork(), arguments),
                        retries=self.limits.retries,
                        failure=f"the tool {self.name!r} returned no outcome",
                        counts=self._counts,
                    )
                except ToolUnavailableError:
                    self._counts.unavailable += 1
                    raise

    def _mistakes(self, arguments: Mapping[str, Any]) -> str:
        errors = () if self._validator is None else self._validator.iter_errors(dict(arguments))
        where = ((".".join(map(str, error.absolute_path)), error.message) for error in errors)
        return "; ".join(f"the argument {path!r}: {message}" if path else message for path, message in where)

    async def _attempt(self, session: ToolSession, arguments: Mapping[str, Any]) -> tuple[Outcome, ToolSession]:
        limit = self.limits.timeout_seconds
        try:
            async with asyncio.timeout(limit):
                return self._truncate(await session.call(arguments)), session
        except TimeoutError as error:
            raise ToolUnavailableError(f"no outcome within {limit:g} s (timeout_seconds)") from error

    def _truncate(self, outcome: Outcome) -> Outcome:
        if len(outcome.text) <= MAX_RESULT_CHARACTERS:
            return outcome
        self._counts.cut += 1
        return replace(outcome, text=outcome.text[:MAX_RESULT_CHARACTERS] + TRUNCATION)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Add the name of the tool to a `ComponentError`."""
        try:
            yield
        except ComponentError as error:
            named = str(error).replace("the tool (", f'the tool "{self.name}" (', 1)
            raise type(error)(named) from error.__cause__

    def metrics(self) -> Mapping[str, float]:
        """Return the tool's own metrics, and the counts of its calls: all, retries, failures, truncated results."""
        counts = self._counts
        calls = {"calls": counts.calls, "retried": counts.retried}
        return {**calls, "unavailable": counts.unavailable, "cut": counts.cut, **self.tool.metrics()}


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


def _validator_of(tool: BaseTool) -> "Draft202012Validator":
    """Return what checks the arguments of a tool, against its schema alone: no other schema is fetched."""
    from jsonschema import Draft202012Validator, SchemaError
    from referencing import Registry

    try:
        schema = json.loads(json.dumps(tool.parameters, default=as_object))
        Draft202012Validator.check_schema(schema)
    except (TypeError, ValueError, SchemaError) as error:
        reason = error.message if isinstance(error, SchemaError) else error
        raise ComponentError(f"the tool ({location(tool)}) needs a JSON schema as its parameters: {reason}") from error
    return Draft202012Validator(schema, registry=Registry())


class ShuffledTool(WrappedTool):
    """An ablation: executes every call, and returns the outcome of an earlier call for another problem.

    It removes the information in the tool's outcomes, so that a model cannot learn from them. The first call of a run
    returns its own outcome, because no other problem has called yet.
    """

    def __init__(self, tool: BaseTool, seed: int) -> None:
        """Wrap `tool`. `seed` determines the choice among the last outcomes."""
        super().__init__(tool)
        self._random = Random(seed)
        self._outcomes: deque[tuple[int, Outcome]] = deque(maxlen=_MAX_SHUFFLED)

    def session(self, seed: int) -> ToolSession:
        """Open a session. Seeds identify problems: all episodes of a problem have the same seed."""
        return _ShuffledSession(self, self.tool.session(seed), seed)

    def problem_session(self, problem: Problem, seed: int) -> ToolSession:
        return _ShuffledSession(self, self.tool.problem_session(problem, seed), seed)

    def exchange(self, outcome: Outcome, seed: int) -> Outcome:
        """Return an outcome of another problem, and keep `outcome` for later calls."""
        others = [other for other_seed, other in self._outcomes if other_seed != seed]
        self._outcomes.append((seed, outcome))
        return self._random.choice(others) if others else outcome


class _ShuffledSession(ToolSession):
    def __init__(self, shuffled: ShuffledTool, session: ToolSession, seed: int) -> None:
        self._shuffled = shuffled
        self._session = session
        self._seed = seed

    async def call(self, arguments: Mapping[str, Any]) -> Outcome:
        return self._shuffled.exchange(await self._session.call(arguments), self._seed)

    def fork(self) -> Self:
        return type(self)(self._shuffled, self._session.fork(), self._seed)
