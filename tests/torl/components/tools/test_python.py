"""The Python tool: what a block finds of the blocks before it, in the real sandbox, and what every tool promises."""

import asyncio
import gc
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from sandboxes import GUESTS
from scripted_engine import ScriptedInterpreter
from torl.base.component import RunContext
from torl.base.errors import ConfigError, SandboxError
from torl.base.types import Outcome, OutcomeStatus, ToolRequest
from torl.components.programs import sandbox_host
from torl.components.programs.sandbox_host import SandboxHost
from torl.components.tools import PythonOptions, PythonTool
from torl.components.tools.python import OUTPUT_BYTES, InterpreterState
from torl.rollout.calls import EpisodeTools
from torl_sandbox import Execution, SandboxPool, _core
from torl_sandbox.session import Session


@pytest.fixture(scope="module", params=GUESTS)
def pool(request: pytest.FixtureRequest) -> Iterator[SandboxPool]:
    with SandboxPool(1, **request.param) as pool:
        yield pool


def code(text: str) -> ToolRequest:
    return ToolRequest("python", {"code": text})


def tool(pool: SandboxPool, state: InterpreterState) -> PythonTool:
    return PythonTool(PythonOptions(interpreter_state=state), interpreter=pool)


def episode(pool: SandboxPool, state: InterpreterState) -> EpisodeTools:
    return EpisodeTools({"python": tool(pool, state)}, seed=7)


def test_the_tool_and_the_sandbox_have_one_set_of_defaults() -> None:
    core, config = _core.SandboxLimits(), PythonOptions()
    assert (config.cpu_seconds, config.wall_seconds) == (core.cpu_seconds, core.wall_seconds)
    assert (config.memory_mib << 20, OUTPUT_BYTES) == (core.memory_bytes, core.output_bytes)


async def called(episode: EpisodeTools, text: str) -> Outcome:
    (answered,) = await episode.call([code(text)])
    return answered.outcome


async def printed(episode: EpisodeTools, *codes: str, early: bool) -> list[str]:
    replies = []
    for text in codes:
        if early:
            episode.speculate(code(text))
        outcome = await called(episode, text)
        replies.append(outcome.details["stdout"] or outcome.error or "")
    await episode.close()
    return replies


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("fresh", ["1\n", "NameError", "NameError", "NameError"]),
        ("episode", ["1\n", "2\n", "ZeroDivisionError", "3\n"]),
        ("replay", ["1\n", "2\n", "ZeroDivisionError", "2\n"]),
    ],
)
async def test_state_seen_by_a_block(
    pool: SandboxPool, state: InterpreterState, expected: list[str], early: bool
) -> None:
    codes = ["x = 1\nprint(x)", "x += 1\nprint(x)", "x += 1\n1 / 0", "print(x)"]
    assert await printed(episode(pool, state), *codes, early=early) == expected


@pytest.mark.parametrize("state", ["episode", "replay"])
async def test_unrequested_run_leaves_nothing(pool: SandboxPool, state: InterpreterState) -> None:
    calls = episode(pool, state)
    assert (await called(calls, "x = 1")).ok
    calls.speculate(code("x = 2"))
    await asyncio.sleep(0.05)
    assert (await called(calls, "print(x)")).text == "1\n"
    calls.speculate(code("x = 3"))
    await calls.close()
    assert (await called(calls, "print(x)")).text == "1\n"


@pytest.mark.parametrize("state", ["episode", "replay"])
async def test_a_fork_and_its_session_find_their_own_blocks_only(pool: SandboxPool, state: InterpreterState) -> None:
    session = tool(pool, state).session(7)
    assert (await session.call({"code": "x = 1"})).ok
    fork = session.fork()
    assert (await fork.call({"code": "x = 2\nprint(x)"})).text == "2\n"
    assert (await session.call({"code": "print(x)"})).text == "1\n"
    assert (await fork.call({"code": "print(x)"})).text == "2\n"


@pytest.mark.parametrize("state", ["fresh", "episode", "replay"])
async def test_sessions_of_one_seed_draw_the_same_numbers(pool: SandboxPool, state: InterpreterState) -> None:
    async def drawn(seed: int) -> str:
        return (await tool(pool, state).session(seed).call({"code": "import random; print(random.random())"})).text

    first, again, other = [await drawn(seed) for seed in (1, 1, 2)]
    assert first == again != other


async def test_outcome_has_output_or_error(pool: SandboxPool) -> None:
    session = tool(pool, "fresh").session(7)
    good = await session.call({"code": "import sys; print('é'); print('aside', file=sys.stderr)"})
    assert (good.status, good.text, good.error) == (OutcomeStatus.OK, "é\n", None)
    assert good.details["stderr"] == "aside\n"
    bad = await session.call({"code": "print('before')\n1 / 0"})
    assert (bad.status, bad.error) == (OutcomeStatus.ERROR, "ZeroDivisionError")
    assert bad.text == "ZeroDivisionError: division by zero"
    assert bad.details["stdout"] == "before\n"
    assert bad.details["traceback"].startswith("Traceback")
    assert bad.details["peak_memory_bytes"] > 0


@pytest.mark.parametrize("state", ["fresh", "episode", "replay"])
@pytest.mark.parametrize("arguments", [{}, {"code": 3}, {"code": None}])
async def test_invalid_code_argument_is_an_outcome(
    pool: SandboxPool, state: InterpreterState, arguments: dict[str, object]
) -> None:
    outcome = await tool(pool, state).session(7).call(arguments)
    assert (outcome.status, outcome.error) == (OutcomeStatus.ERROR, "TypeError")
    assert outcome.text == "TypeError: the argument 'code' must be text"


def test_an_interpreter_without_state_is_refused() -> None:
    with pytest.raises(ConfigError, match="interpreter_state"):
        PythonTool(PythonOptions(interpreter_state="episode"), interpreter=ScriptedInterpreter())


async def test_stopped_tool_raises_a_clear_error() -> None:
    tool = PythonTool(PythonOptions(workers=1))
    with pytest.raises(SandboxError, match="not running: start it first"):
        tool.session(0)
    assert tool.metrics() == {}
    await tool.check()
    await tool.close()


async def test_tool_starts_checks_and_closes_its_sandbox() -> None:
    tool = PythonTool(PythonOptions(workers=1, cpu_seconds=0.5, wall_seconds=30.0))
    await tool.start(RunContext())
    try:
        await tool.check()
        session = tool.session(0)
        assert (await session.call({"code": "print(1)"})).text == "1\n"
        statuses = [
            (await session.call({"code": text})).status
            for text in ("while True: pass", "print('x' * (2 << 20))", "x = bytearray(1 << 30)")
        ]
        assert statuses == [OutcomeStatus.TIMEOUT, OutcomeStatus.OUTPUT_LIMIT, OutcomeStatus.MEMORY]
        assert set(tool.metrics()) == {"shared", "retried", "workers_replaced"}
    finally:
        await tool.close()
    with pytest.raises(SandboxError, match="not running"):
        tool.session(0)


async def test_states_of_any_number_of_episodes_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evicted programs are executed again, at most two at once for each worker."""
    size = 2 << 20
    monkeypatch.setattr(sandbox_host, "_STATE_BYTES_PER_WORKER", 3 * size)
    tool, sizes = PythonTool(PythonOptions(interpreter_state="episode", workers=1)), [0]

    async def measure() -> None:
        while True:
            sizes.append(sum(each.state_bytes for each in gc.get_objects() if type(each) is Session))
            await asyncio.sleep(0.01)

    await tool.start(RunContext())
    measuring = asyncio.create_task(measure())
    try:
        sessions = [tool.session(seed) for seed in range(12)]
        for number, session in enumerate(sessions):
            assert (await session.call({"code": f"x = [{number}] * ({size} // 4)"})).ok
        replies = await asyncio.gather(*(session.call({"code": "print(x[-1])"}) for session in sessions))
        assert [reply.text for reply in replies] == [f"{number}\n" for number in range(12)]
    finally:
        measuring.cancel()
        await tool.close()
    # Two states are kept, and two programs are in use, of which one has just been kept.
    assert 2 * size < max(sizes) < 6 * size


class TimedSession:
    """A program that has run the cells in `done`. The first one of all reaches its time limit in its first cell."""

    state_bytes = 1

    def __init__(self, programs: list["TimedSession"], done: tuple[str, ...] = ()) -> None:
        self.programs, self.done = programs, done
        programs.append(self)

    def fork(self) -> "TimedSession":
        return TimedSession(self.programs, self.done)

    async def run_async(self, code: str) -> Execution:
        is_late = self is self.programs[0]
        self.done = self.done if is_late else (*self.done, code)
        status = OutcomeStatus.TIMEOUT if is_late else OutcomeStatus.OK
        return Execution(status, " ".join(self.done), "", None, None, None, 0.0, 0.0, 0)


async def test_states_after_a_time_limit_are_of_one_episode() -> None:
    """Equal cells of two episodes end at other places if the machine is busy."""
    programs: list[TimedSession] = []
    pool: Any = SimpleNamespace(
        workers=1,
        session=lambda seed: TimedSession(programs),
        self_test=lambda: None,
        stats=dict,
        close=lambda: None,
    )
    host = SandboxHost(lambda: pool)
    await host.start()
    first, second = host.session(seed=1), host.session(seed=1)
    assert (await first.run_async("a")).status is OutcomeStatus.TIMEOUT
    assert (await second.run_async("a")).status is OutcomeStatus.OK
    fork = first.fork()
    assert [(await each.run_async("b")).stdout for each in (first, fork, second)] == ["b", "b", "a b"]
    assert (await host.session(seed=1).run_async("a")).stdout == "a"
    await host.close()


def test_descriptions_of_the_tool_and_its_argument_are_options() -> None:
    tool = PythonTool(PythonOptions(description="A tool for executing code.", code_description="The code to execute."))
    assert tool.description == "A tool for executing code."
    assert tool.parameters["properties"]["code"]["description"] == "The code to execute."
    assert PythonTool().parameters == PythonTool.parameters
