"""Calls of one episode: those that begin before they are asked for, and those that are given up."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import pytest

from scripted_engine import ScriptedInterpreter
from torl.rollout.calls import CallCounters, EpisodeTools
from torl.sandbox import Execution
from torl.tools import PythonTool, Tool, ToolSession
from torl.types import Outcome, OutcomeStatus, ToolRequest


def code(text: str) -> ToolRequest:
    return ToolRequest("python", {"code": text})


def python(interpreter: ScriptedInterpreter, counters: CallCounters | None = None) -> EpisodeTools:
    return EpisodeTools({"python": PythonTool(interpreter=interpreter)}, seed=7, counters=counters)


async def test_a_run_begun_early_is_the_one_that_is_asked_for() -> None:
    interpreter, counters = ScriptedInterpreter(delay=0.05), CallCounters()
    episode = python(interpreter, counters)
    episode.begin(code("a"))
    await asyncio.sleep(0.03)
    episode.begin(code("b"))  # a later block of the same turn
    await asyncio.sleep(0.03)
    assert (await episode.call(code("b"))).text == "b\n"
    assert interpreter.codes == ["a", "b"]
    assert (counters.speculated, counters.wasted) == (2, 1)
    episode.begin(code("c"))
    await asyncio.sleep(0)
    assert (await episode.call(code("d"))).text == "d\n"
    assert (counters.speculated, counters.wasted) == (3, 2)
    await episode.close()
    assert interpreter.running == 0
    assert set(interpreter.seeds) == {7}


async def test_a_block_that_is_announced_twice_starts_once() -> None:
    interpreter, counters = ScriptedInterpreter(delay=0.02), CallCounters()
    episode = python(interpreter, counters)
    episode.begin(code("a"))
    await asyncio.sleep(0)
    episode.begin(code("a"))
    assert (await episode.call(code("a"))).text == "a\n"
    assert interpreter.codes == ["a"]
    assert (counters.speculated, counters.wasted) == (1, 0)


@pytest.mark.parametrize("how", ["another block", "another call", "the episode ends"])
async def test_a_run_that_is_given_up_is_cancelled(how: str) -> None:
    """It would hold a worker up to its limit otherwise."""

    class Endless(ScriptedInterpreter):
        async def run_async(self, code: str, *, seed: int = 0) -> Execution:
            if code != "endless":
                return await super().run_async(code, seed=seed)
            self.running += 1
            try:
                await asyncio.Event().wait()
            finally:
                self.running -= 1
            raise AssertionError("unreachable")

    interpreter = Endless()
    episode = python(interpreter)
    episode.begin(code("endless"))
    await asyncio.sleep(0)
    assert interpreter.running == 1
    async with asyncio.timeout(60):  # what is not cancelled never ends
        if how == "another block":
            episode.begin(code("b"))
            assert (await episode.call(code("b"))).ok
        elif how == "another call":
            assert (await episode.call(code("b"))).ok
        else:
            await episode.close()
    assert interpreter.running == 0


async def test_cancelling_ends_a_run_begun_early() -> None:
    interpreter = ScriptedInterpreter(delay=3600)
    episode = python(interpreter)
    episode.begin(code("a"))
    waiting = asyncio.ensure_future(episode.call(code("a")))
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.sleep(0)
    assert interpreter.running == 0


async def test_a_host_that_broke_where_nobody_asked_is_not_raised() -> None:
    interpreter = ScriptedInterpreter(fail_with=RuntimeError("broken"))
    episode = python(interpreter)
    episode.begin(code("a"))
    for _ in range(10):
        await asyncio.sleep(0)
    interpreter.fail_with = None
    assert (await episode.call(code("b"))).text == "b\n"
    await episode.close()


# --- other tools --------------------------------------------------------------------------------------------------


@dataclass
class Notes(Tool):
    """Counts the calls of a session; says how many sessions it opened."""

    starts_early: bool = True
    description: str = "Keeps notes."
    parameters: Mapping[str, Any] = field(default_factory=dict)
    seeds: list[int] = field(default_factory=list)

    def session(self, seed: int) -> "NotesSession":
        self.seeds.append(seed)
        return NotesSession()


@dataclass
class NotesSession(ToolSession):
    notes: list[str] = field(default_factory=list)

    async def call(self, arguments: Mapping[str, Any]) -> Outcome:
        self.notes.append(arguments["note"])
        return Outcome(OutcomeStatus.OK, ", ".join(self.notes))

    def fork(self) -> Self:
        return type(self)([*self.notes])


def note(text: str, tool: str = "notes") -> ToolRequest:
    return ToolRequest(tool, {"note": text})


async def test_each_tool_has_one_session_in_an_episode() -> None:
    notes, others = Notes(), Notes()
    episode = EpisodeTools({"notes": notes, "others": others}, seed=7)
    assert (await episode.call(note("a"))).text == "a"
    assert (await episode.call(note("x", "others"))).text == "x"
    assert (await episode.call(note("b"))).text == "a, b"
    assert (notes.seeds, others.seeds) == ([7], [7])
    assert (await EpisodeTools({"notes": notes}, seed=8).call(note("c"))).text == "c"
    assert notes.seeds == [7, 8]


async def test_what_an_early_call_did_is_kept_only_if_it_is_asked_for() -> None:
    episode = EpisodeTools({"notes": Notes()}, seed=7)
    assert (await episode.call(note("a"))).text == "a"
    episode.begin(note("unasked"))
    await asyncio.sleep(0)
    episode.begin(note("b"))
    assert (await episode.call(note("b"))).text == "a, b"
    episode.begin(note("unasked"))
    await asyncio.sleep(0)
    assert (await episode.call(note("c"))).text == "a, b, c"
    await episode.close()


async def test_a_tool_that_does_not_start_early_is_not_begun() -> None:
    counters = CallCounters()
    notes = Notes(starts_early=False)
    episode = EpisodeTools({"notes": notes}, seed=7, counters=counters)
    episode.begin(note("a"))
    episode.begin(note("a", "no such tool"))
    await asyncio.sleep(0)
    assert notes.seeds == []
    assert counters == CallCounters(0, 0)
    assert (await episode.call(note("a"))).text == "a"


async def test_a_tool_that_nobody_has_is_an_outcome() -> None:
    episode = EpisodeTools({"notes": Notes(), "others": Notes()}, seed=7)
    outcome = await episode.call(note("a", "nots"))
    assert (outcome.status, outcome.error) == (OutcomeStatus.ERROR, "UnknownTool")
    assert outcome.text == "there is no tool 'nots', only notes, others"
