"""Calls of one episode: speculative calls, and cancelled calls."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import pytest

from scripted_engine import ScriptedInterpreter
from torl.base.errors import EpisodeComponentError, HangError
from torl.base.runtime.processes.hangs import PendingCalls
from torl.base.types import Outcome, OutcomeStatus, ToolRequest
from torl.components.tools import PythonTool, StatefulTool, Tool, ToolSession
from torl.rollout.calls import CallCounters, EpisodeTools
from torl_sandbox import Execution


def code(text: str) -> ToolRequest:
    return ToolRequest("python", {"code": text})


def python(interpreter: ScriptedInterpreter, counters: CallCounters | None = None) -> EpisodeTools:
    return EpisodeTools({"python": PythonTool(interpreter=interpreter)}, seed=7, counters=counters)


async def made(episode: EpisodeTools, request: ToolRequest) -> Outcome:
    """The outcome of the only call of a turn."""
    (answered,) = await episode.call([request])
    return answered.outcome


async def test_speculative_run_answers_the_call() -> None:
    interpreter, counters = ScriptedInterpreter(delay=0.05), CallCounters()
    episode = python(interpreter, counters)
    episode.speculate(code("a"))
    await asyncio.sleep(0.03)
    episode.speculate(code("b"))  # a later block of the same turn
    await asyncio.sleep(0.03)
    assert (await made(episode, code("b"))).text == "b\n"
    assert interpreter.codes == ["a", "b"]
    assert (counters.speculated, counters.wasted) == (2, 1)
    episode.speculate(code("c"))
    await asyncio.sleep(0)
    assert (await made(episode, code("d"))).text == "d\n"
    assert (counters.speculated, counters.wasted) == (3, 2)
    await episode.close()
    assert interpreter.running == 0
    assert set(interpreter.seeds) == {7}


async def test_a_block_that_is_announced_twice_starts_once() -> None:
    interpreter, counters = ScriptedInterpreter(delay=0.02), CallCounters()
    episode = python(interpreter, counters)
    episode.speculate(code("a"))
    await asyncio.sleep(0)
    episode.speculate(code("a"))
    assert (await made(episode, code("a"))).text == "a\n"
    assert interpreter.codes == ["a"]
    assert (counters.speculated, counters.wasted) == (1, 0)


@pytest.mark.parametrize("how", ["another block", "another call", "the episode ends"])
async def test_abandoned_run_is_cancelled(how: str) -> None:
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
    episode.speculate(code("endless"))
    await asyncio.sleep(0)
    assert interpreter.running == 1
    async with asyncio.timeout(60):  # a call that is not cancelled never ends
        if how == "another block":
            episode.speculate(code("b"))
            assert (await made(episode, code("b"))).ok
        elif how == "another call":
            assert (await made(episode, code("b"))).ok
        else:
            await episode.close()
    assert interpreter.running == 0


async def test_cancelling_ends_a_run_begun_early() -> None:
    interpreter = ScriptedInterpreter(delay=3600)
    episode = python(interpreter)
    episode.speculate(code("a"))
    waiting = asyncio.ensure_future(made(episode, code("a")))
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.sleep(0)
    assert interpreter.running == 0


async def test_host_failure_in_an_unused_call_is_not_raised() -> None:
    interpreter = ScriptedInterpreter(fail_with=RuntimeError("broken"))
    episode = python(interpreter)
    episode.speculate(code("a"))
    for _ in range(10):
        await asyncio.sleep(0)
    interpreter.fail_with = None
    assert (await made(episode, code("b"))).text == "b\n"
    await episode.close()


# --- other tools --------------------------------------------------------------------------------------------------


@dataclass
class Notes(StatefulTool):
    """Counts the calls of a session; says how many sessions it opened."""

    speculative: bool = True
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
    assert (await made(episode, note("a"))).text == "a"
    assert (await made(episode, note("x", "others"))).text == "x"
    assert (await made(episode, note("b"))).text == "a, b"
    assert (notes.seeds, others.seeds) == ([7], [7])
    assert (await made(EpisodeTools({"notes": notes}, seed=8), note("c"))).text == "c"
    assert notes.seeds == [7, 8]


async def test_speculative_state_is_kept_only_if_requested() -> None:
    episode = EpisodeTools({"notes": Notes()}, seed=7)
    assert (await made(episode, note("a"))).text == "a"
    episode.speculate(note("unasked"))
    await asyncio.sleep(0)
    episode.speculate(note("b"))
    assert (await made(episode, note("b"))).text == "a, b"
    episode.speculate(note("unasked"))
    await asyncio.sleep(0)
    assert (await made(episode, note("c"))).text == "a, b, c"
    await episode.close()


async def test_a_tool_that_does_not_start_early_is_not_begun() -> None:
    counters = CallCounters()
    notes = Notes(speculative=False)
    episode = EpisodeTools({"notes": notes}, seed=7, counters=counters)
    episode.speculate(note("a"))
    episode.speculate(note("a", "no such tool"))
    await asyncio.sleep(0)
    assert notes.seeds == []
    assert counters == CallCounters(0, 0)
    assert (await made(episode, note("a"))).text == "a"


async def test_unknown_tool_is_an_outcome() -> None:
    episode = EpisodeTools({"notes": Notes(), "others": Notes()}, seed=7)
    outcome = await made(episode, note("a", "nots"))
    assert (outcome.status, outcome.error) == (OutcomeStatus.ERROR, "UnknownTool")
    assert outcome.text == "there is no tool 'nots', only notes, others"


# --- several calls in a turn --------------------------------------------------------------------------------------


@dataclass
class Meeting(Tool):
    """Answers a call when as many as it waits for are under way at once. It keeps nothing."""

    together: int
    speculative: bool = True
    description: str = "Meets."
    parameters: Mapping[str, Any] = field(default_factory=dict)
    here: int = 0
    met: asyncio.Event = field(default_factory=asyncio.Event)

    async def call(self, arguments: Mapping[str, Any]) -> Outcome:
        self.here += 1
        if self.here == self.together:
            self.met.set()
        await self.met.wait()
        return Outcome(OutcomeStatus.OK, arguments["note"])


async def texts(episode: EpisodeTools, *requests: ToolRequest) -> list[str]:
    async with asyncio.timeout(60):  # calls that wait for each other never end otherwise
        return [answered.outcome.text for answered in await episode.call(requests)]


async def test_calls_that_keep_nothing_run_side_by_side_and_are_answered_in_order() -> None:
    episode = EpisodeTools({"meeting": Meeting(together=3)}, seed=7)
    requests = [note(text, "meeting") for text in "abc"]
    assert await texts(episode, *requests) == ["a", "b", "c"]


async def test_calls_of_several_tools_run_side_by_side() -> None:
    meeting = Meeting(together=2)

    class Guests(Notes):
        def session(self, seed: int) -> Any:
            return Guest(meeting)

    class Guest(ToolSession):
        def __init__(self, meeting: Meeting) -> None:
            self.meeting = meeting

        async def call(self, arguments: Mapping[str, Any]) -> Outcome:
            return await self.meeting.call(arguments)

        def fork(self) -> "Guest":
            return Guest(meeting)

    episode = EpisodeTools({"ones": Guests(), "others": Guests()}, seed=7)
    assert await texts(episode, note("a", "ones"), note("b", "others")) == ["a", "b"]


async def test_calls_of_a_turn_share_their_state() -> None:
    episode = EpisodeTools({"notes": Notes(), "others": Notes()}, seed=7)
    answers = await texts(episode, note("a"), note("x", "others"), note("b"), note("y", "nobody"), note("c"))
    assert answers == ["a", "x", "a, b", "there is no tool 'nobody', only notes, others", "a, b, c"]
    assert await texts(episode, note("d")) == ["a, b, c, d"]


@pytest.mark.parametrize("begun", [["a"], ["a", "b"], ["a", "b", "c"], ["b"], ["a", "b", "c", "d"], ["a", "c"]])
async def test_speculative_calls_are_used_or_leave_nothing(begun: list[str]) -> None:
    counters = CallCounters()
    episode = EpisodeTools({"notes": Notes()}, seed=7, counters=counters)
    for text in begun:
        episode.speculate(note(text), replaces=False)
        await asyncio.sleep(0)
    assert await texts(episode, *map(note, "abc")) == ["a", "a, b", "a, b, c"]
    assert counters.speculated == len(begun)
    assert counters.wasted == (0 if begun == list("abc")[: len(begun)] else len(begun))


async def test_a_later_call_waits_for_one_that_keeps_something() -> None:
    """However long the first one takes."""

    class Slow(NotesSession):
        async def call(self, arguments: Mapping[str, Any]) -> Outcome:
            for _ in range(20 if arguments["note"] == "a" else 0):
                await asyncio.sleep(0)
            return await super().call(arguments)

    class SlowNotes(Notes):
        def session(self, seed: int) -> NotesSession:
            return Slow()

    episode = EpisodeTools({"notes": SlowNotes()}, seed=7)
    assert await texts(episode, note("a"), note("b")) == ["a", "a, b"]


async def test_a_broken_host_ends_the_other_calls_of_the_turn() -> None:
    interpreter, broken = ScriptedInterpreter(delay=3600), ScriptedInterpreter(fail_with=RuntimeError("broken"))
    tools = {"python": PythonTool(interpreter=interpreter), "other": PythonTool(interpreter=broken)}
    episode = EpisodeTools(tools, seed=7)
    with pytest.raises(EpisodeComponentError, match="RuntimeError: broken"):
        await episode.call([code("a"), ToolRequest("other", {"code": "b"})])
    for _ in range(3):
        await asyncio.sleep(0)
    assert interpreter.running == 0


async def test_each_call_of_a_turn_has_the_whole_time_limit() -> None:
    class Slow(NotesSession):
        async def call(self, arguments: Mapping[str, Any]) -> Outcome:
            await asyncio.sleep(0.1)
            return await super().call(arguments)

    class SlowNotes(Notes):
        def session(self, seed: int) -> NotesSession:
            return Slow()

    calls = PendingCalls()
    watch = asyncio.create_task(calls.watch(0.4, "here"))
    await texts(EpisodeTools({"notes": SlowNotes()}, seed=7, open_calls=calls), *map(note, "abcdefgh"))
    assert not watch.done()
    watch.cancel()


async def test_tool_that_never_answers_is_named_among_the_tools_of_a_turn() -> None:
    calls = PendingCalls()
    tools = {"notes": Notes(), "meeting": Meeting(together=2)}
    turn = asyncio.create_task(texts(EpisodeTools(tools, seed=7, open_calls=calls), note("a"), note("b", "meeting")))
    with pytest.raises(HangError, match=r"^the tool 'meeting' did not respond within"):
        await asyncio.wait_for(calls.watch(0.3, "here"), 60)
    turn.cancel()


@dataclass
class Surrogates(Tool):
    """Gives what JSON may hold and no tokenizer takes."""

    description = "Says half of a character."
    parameters: Mapping[str, Any] = field(default_factory=dict)  # type: ignore[misc]

    async def call(self, arguments: Mapping[str, Any]) -> Outcome:
        return Outcome(OutcomeStatus.ERROR, "\ud800 \ud83d\ude00", "\udfff", {"traceback": "\ud800", "lines": 1})


async def test_an_output_that_is_text_and_detail_is_in_memory_once() -> None:
    outcome = await made(python(ScriptedInterpreter(lambda _: "é" * 1000)), code("a"))
    assert outcome.text is outcome.details["stdout"]


async def test_half_of_a_surrogate_pair_is_shown_as_a_character_that_is_unknown() -> None:
    episode = EpisodeTools({"python": Surrogates()}, seed=7)
    outcome = await made(episode, code("1"))
    assert outcome == Outcome(OutcomeStatus.ERROR, "\ufffd \U0001f600", "\ufffd", {"traceback": "\ufffd", "lines": 1})
    assert outcome.details == {"traceback": "\ufffd", "lines": 1}
