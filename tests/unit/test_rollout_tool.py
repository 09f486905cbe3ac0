"""Runs that start early, and what a block finds of the blocks before it: in the real sandbox."""

import asyncio
from collections.abc import Iterator

import pytest

from sandboxes import GUESTS
from scripted_engine import ScriptedInterpreter
from torl.errors import ConfigError
from torl.rollout.tool import Tool, ToolCounters
from torl.sandbox import SandboxPool
from torl.types import InterpreterState, Outcome


@pytest.fixture(scope="module", params=GUESTS)
def pool(request: pytest.FixtureRequest) -> Iterator[SandboxPool]:
    with SandboxPool(1, **request.param) as pool:
        yield pool


def tool(pool: SandboxPool, state: InterpreterState) -> Tool:
    return Tool(pool, state, seed=7)


async def printed(tool: Tool, *codes: str, early: bool) -> list[str]:
    found = []
    for code in codes:
        if early:
            tool.start(code)
        outcome = await tool.call(code)
        found.append(outcome.stdout or outcome.exception_type or "")
    await tool.close()
    return found


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("fresh", ["1\n", "NameError", "NameError", "NameError"]),
        ("episode", ["1\n", "2\n", "ZeroDivisionError", "3\n"]),
        ("replay", ["1\n", "2\n", "ZeroDivisionError", "2\n"]),
    ],
)
async def test_what_a_block_finds(pool: SandboxPool, state: InterpreterState, expected: list[str], early: bool) -> None:
    codes = ["x = 1\nprint(x)", "x += 1\nprint(x)", "x += 1\n1 / 0", "print(x)"]
    assert await printed(tool(pool, state), *codes, early=early) == expected


@pytest.mark.parametrize("state", ["episode", "replay"])
async def test_a_run_that_nobody_asked_for_leaves_nothing(pool: SandboxPool, state: InterpreterState) -> None:
    episode = tool(pool, state)
    assert (await episode.call("x = 1")).ok
    episode.start("x = 2")
    await asyncio.sleep(0.05)
    assert (await episode.call("print(x)")).stdout == "1\n"
    episode.start("x = 3")
    await episode.close()
    assert (await episode.call("print(x)")).stdout == "1\n"


async def test_a_run_begun_early_is_the_one_that_is_asked_for() -> None:
    interpreter, counters = ScriptedInterpreter(delay=0.05), ToolCounters()
    episode = Tool(interpreter, "fresh", seed=7, counters=counters)
    episode.start("a")
    await asyncio.sleep(0.03)
    episode.start("b")  # a later block of the same turn
    await asyncio.sleep(0.03)
    assert (await episode.call("b")).stdout == "b\n"
    assert interpreter.codes == ["a", "b"]
    assert (counters.speculated, counters.wasted) == (2, 1)
    episode.start("c")
    await asyncio.sleep(0)
    assert (await episode.call("d")).stdout == "d\n"
    assert (counters.speculated, counters.wasted) == (3, 2)
    await episode.close()
    assert interpreter.running == 0


async def test_a_block_that_is_announced_twice_starts_once() -> None:
    interpreter, counters = ScriptedInterpreter(delay=0.02), ToolCounters()
    episode = Tool(interpreter, "fresh", seed=7, counters=counters)
    episode.start("a")
    await asyncio.sleep(0)
    episode.start("a")
    assert (await episode.call("a")).stdout == "a\n"
    assert interpreter.codes == ["a"]
    assert (counters.speculated, counters.wasted) == (1, 0)


@pytest.mark.parametrize("how", ["another block", "another call", "the episode ends"])
async def test_a_run_that_is_given_up_is_cancelled(how: str) -> None:
    """It would hold a worker up to its limit otherwise."""

    class Endless(ScriptedInterpreter):
        async def run_async(self, code: str, *, seed: int = 0) -> Outcome:
            if code != "endless":
                return await super().run_async(code, seed=seed)
            self.running += 1
            try:
                await asyncio.Event().wait()
            finally:
                self.running -= 1
            raise AssertionError("unreachable")

    interpreter = Endless()
    episode = Tool(interpreter, "fresh", seed=7)
    episode.start("endless")
    await asyncio.sleep(0)
    assert interpreter.running == 1
    async with asyncio.timeout(60):  # what is not cancelled never ends
        if how == "another block":
            episode.start("b")
            assert (await episode.call("b")).ok
        elif how == "another call":
            assert (await episode.call("b")).ok
        else:
            await episode.close()
    assert interpreter.running == 0


async def test_cancelling_ends_a_run_begun_early() -> None:
    interpreter = ScriptedInterpreter(delay=3600)
    episode = Tool(interpreter, "fresh", seed=7)
    episode.start("a")
    waiting = asyncio.ensure_future(episode.call("a"))
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.sleep(0)
    assert interpreter.running == 0


def test_an_interpreter_without_state_is_refused() -> None:
    with pytest.raises(ConfigError, match="interpreter_state"):
        Tool(ScriptedInterpreter(), "episode", seed=7)
