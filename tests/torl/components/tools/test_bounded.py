"""Any tool within its bounds: time, tries, results, calls at once. A call without an outcome is the host's failure."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Self

import pytest

from torl.base.errors import ComponentError, EpisodeComponentError, SandboxError, ToolUnavailableError
from torl.base.types import Outcome, OutcomeStatus
from torl.components.tools import (
    BoundedTool,
    PythonTool,
    SandboxFusionTool,
    StatefulTool,
    Tool,
    ToolLimits,
    ToolSession,
    tool_limits,
)


@dataclass
class Counter(StatefulTool, ToolSession):
    """Adds one in each call, before `trouble(n)` of its nth try, counted over all forks; `n` is what it has counted."""

    description = "Counts."
    parameters: Mapping[str, Any] = field(default_factory=dict)  # type: ignore[misc]
    trouble: Callable[[int], BaseException | float | None] = lambda _: None
    tries: list[int] = field(default_factory=list)
    running: list[int] = field(default_factory=lambda: [0, 0])  # now, at most
    n: int = 0
    speculative = True

    def session(self, seed: int) -> Self:
        return self.fork()

    def fork(self) -> Self:
        return type(self)(self.parameters, self.trouble, self.tries, self.running, self.n)

    async def call(self, arguments: Mapping[str, Any]) -> Outcome:
        self.n += 1
        self.tries.append(self.n)
        self.running[0] += 1
        self.running[1] = max(self.running)
        try:
            await asyncio.sleep(0)
            trouble = self.trouble(len(self.tries) - 1)
            if isinstance(trouble, BaseException):
                raise trouble
            await asyncio.sleep(trouble or 0)
        finally:
            self.running[0] -= 1
        return Outcome(OutcomeStatus.OK, str(self.n))

    def metrics(self) -> Mapping[str, float]:
        return {"tries": len(self.tries)}


def bounded(trouble: Callable[[int], BaseException | float | None] = lambda _: None, **bounds: Any) -> BoundedTool:
    return BoundedTool("counter", Counter(trouble=trouble), ToolLimits.model_validate(bounds))


async def test_a_call_that_finds_the_tool_away_is_made_again_as_if_for_the_first_time() -> None:
    tool = bounded(lambda number: ToolUnavailableError("away") if number in (1, 2) else None)
    session = tool.session(0)
    assert [(await session.call({})).text for _ in range(3)] == ["1", "2", "3"]
    assert tool.tool.metrics() == {"tries": 5}
    assert tool.metrics() == {"calls": 3, "retried": 2, "unavailable": 0, "cut": 0, "tries": 5}


async def test_unavailable_tool_is_a_host_failure_and_keeps_the_session() -> None:
    tool = bounded(lambda number: ToolUnavailableError("the line is dead") if number > 0 else None, retries=2)
    session = tool.session(0)
    assert (await session.call({})).text == "1"
    with pytest.raises(
        ToolUnavailableError, match=r"'counter' returned no outcome in 3 attempts; the last error: the line is dead"
    ):
        await session.call({})
    assert isinstance(tool.tool, Counter)
    assert tool.tool.tries == [1, 2, 2, 2]
    assert tool.metrics()["unavailable"] == 1


async def test_a_try_that_takes_too_long_is_cancelled_and_made_again() -> None:
    tool = bounded(lambda number: 3600 if number == 0 else None, timeout_seconds=0.01)
    assert (await tool.session(0).call({})).text == "1"
    assert isinstance(tool.tool, Counter)
    assert tool.tool.running[0] == 0
    tool = bounded(lambda _: 3600, timeout_seconds=0.01, retries=0)
    with pytest.raises(
        ToolUnavailableError, match=r"in one attempt; the last error: no outcome within 0.01 s \(timeout_seconds\)"
    ):
        await tool.session(0).call({})


async def test_a_try_that_the_tool_itself_cancels_is_made_again() -> None:
    tool = bounded(lambda number: asyncio.CancelledError() if number == 0 else None)
    assert (await tool.session(0).call({})).text == "1"
    tool = bounded(lambda _: asyncio.CancelledError(), retries=0)
    with pytest.raises(
        ToolUnavailableError, match=r"the last error: the tool \(.*Counter\) cancelled call\(\{\}\) itself"
    ):
        await tool.session(0).call({})


@pytest.mark.parametrize(
    "error", [SandboxError("broken"), TimeoutError("its own"), KeyError("a bug"), ExceptionGroup("two", [KeyError(1)])]
)
async def test_other_exceptions_are_not_retried_and_fail_the_episode(error: Exception) -> None:
    tool = bounded(lambda _: error)
    with pytest.raises(SandboxError if isinstance(error, SandboxError) else EpisodeComponentError) as raised:
        await tool.session(0).call({})
    if not isinstance(error, SandboxError):
        name = type(error.exceptions[0] if isinstance(error, ExceptionGroup) else error).__name__
        assert (
            f'the tool "counter" (tests.torl.components.tools.test_bounded:Counter) failed in call({{}})\n{name}'
            in str(raised.value)
        )
        assert "tools/test_bounded.py" in str(raised.value).splitlines()[2]
    assert tool.metrics()["tries"] == 1


async def test_concurrent_calls_are_limited_and_waiting_is_not_timed() -> None:
    tool = bounded(lambda _: 0.02, max_concurrent=2, timeout_seconds=10)
    outcomes = await asyncio.gather(*(tool.session(0).call({}) for _ in range(9)))
    assert len(outcomes) == 9
    assert isinstance(tool.tool, Counter)
    assert tool.tool.running == [0, 2]


async def test_a_long_result_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torl.components.tools.wrappers.MAX_RESULT_CHARACTERS", 3)
    tool = bounded()
    long = Outcome(OutcomeStatus.OK, "abcdef", details={"kept": True})
    session = tool.session(0)
    session.session.call = lambda _: asyncio.sleep(0, long)  # type: ignore[attr-defined]
    session.session.fork = lambda: session.session  # type: ignore[attr-defined]
    assert await session.call({}) == Outcome(OutcomeStatus.OK, "abc...", details={"kept": True})
    assert tool.metrics()["cut"] == 1


async def test_an_early_call_in_a_fork_leaves_the_session_alone() -> None:
    session = bounded().session(0)
    fork = session.fork()
    assert [(await fork.call({})).text for _ in range(2)] == ["1", "2"]
    assert (await session.call({})).text == "1"


async def test_a_session_that_keeps_nothing_is_its_own_fork_within_bounds_too() -> None:
    tool = bounded()
    assert isinstance(tool.tool, Counter)
    session = tool.session(0)
    assert session.fork() is not session
    session.session.fork = lambda: session.session  # type: ignore[attr-defined]
    assert session.fork() is session


async def test_giving_a_call_up_frees_its_place() -> None:
    tool = bounded(lambda _: 3600, max_concurrent=1)
    task = asyncio.ensure_future(tool.session(0).call({}))
    while not tool.metrics()["tries"]:
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert isinstance(tool.tool, Counter)
    tool.tool.trouble = lambda _: None
    assert (await tool.session(0).call({})).text == "1"


class Dictionary(Tool):
    description = "The meaning of a word."
    parameters = MappingProxyType(
        {
            "type": "object",
            "properties": {"word": {"type": "string"}, "senses": {"type": "integer"}, "any": {"$ref": "https://a.b/c"}},
            "required": ("word",),
            "additionalProperties": False,
        }
    )

    async def call(self, arguments: Mapping[str, Any]) -> Outcome:
        return Outcome(OutcomeStatus.OK, arguments["word"].upper())


@pytest.mark.parametrize(
    ("arguments", "mistake"),
    [
        ({}, "'word' is a required property"),
        ({"word": 3}, "the argument 'word': 3 is not of type 'string'"),
        ({"word": "a", "senses": "two"}, "the argument 'senses': 'two' is not of type 'integer'"),
        ({"word": "a", "x": 1}, "Additional properties are not allowed ('x' was unexpected)"),
        ({"senses": None}, "'word' is a required property; the argument 'senses': None is not of type 'integer'"),
    ],
)
async def test_a_call_that_does_not_fit_the_schema_is_the_mistake_of_the_model(
    arguments: dict[str, Any], mistake: str
) -> None:
    tool = BoundedTool("dictionary", Dictionary(), ToolLimits())
    session = tool.session(0)
    outcome = await session.call(arguments)
    assert (outcome.status, outcome.error) == (OutcomeStatus.ERROR, "TypeError")
    assert sorted(outcome.text.removeprefix("TypeError: ").split("; ")) == sorted(mistake.split("; "))
    assert await session.call({"word": "torus"}) == Outcome(OutcomeStatus.OK, "TORUS")
    assert tool.metrics() == {"calls": 2, "retried": 0, "unavailable": 0, "cut": 0}


async def test_a_tool_that_checks_its_arguments_receives_them_as_they_are() -> None:
    tool = Dictionary()
    tool.checks_arguments = True
    with pytest.raises(EpisodeComponentError, match="KeyError: 'word'"):
        await BoundedTool("dictionary", tool, ToolLimits()).session(0).call({})


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [({"type": "text"}, "'text' is not valid"), ({"properties": [1]}, r"\[1\] is not of type"), ({"x": {1}}, "set")],
)
def test_parameters_that_are_not_a_schema_are_refused(parameters: dict[str, Any], reason: str) -> None:
    with pytest.raises(
        ComponentError, match=rf"the tool \(.*Counter\) needs a JSON schema as its parameters: .*{reason}"
    ):
        BoundedTool("counter", Counter(parameters), ToolLimits())


def test_tools_with_limits_of_their_own_keep_them() -> None:
    assert tool_limits(PythonTool) is tool_limits(SandboxFusionTool) is None
    assert tool_limits(Counter) is ToolLimits
