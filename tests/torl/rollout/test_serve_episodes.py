"""Episodes whose code runs through SandboxFusion's interface equal those whose code runs in a local pool."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from builders import asked, play_trajectories, player
from scripted_engine import ENCODER, ScriptedEngine
from serving import Server, run_server
from torl.base.component import RunContext
from torl.base.errors import ToolUnavailableError
from torl.base.types import OutcomeStatus, Trajectory
from torl.components.tools import SandboxFusionOptions, SandboxFusionTool
from torl_lab.audit.replay import python_mismatch
from torl_sandbox import SandboxPool

LIMITS = {"cpu_seconds": 0.3, "memory_bytes": 256 << 20}
CODES = [
    "print(6 * 7)",
    "import sys\nprint('é')\nprint('aside', file=sys.stderr)",
    "print('before')\n1 / 0",
    "def f(n):\n    return f(n + 1)\nf(0)",
    "try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise KeyError('a')",
    "x = = 1",
    "import nothing_like_it",
    "import sys\nsys.exit(3)",
    "import sys\nsys.exit('gave up')",
    "print('first')\nwhile True: pass",
    "x = bytearray(1 << 30)",
    "print('x' * 2_000_000)",
    "from sympy import *\nx = symbols('x')\nprint(solve(x**2 - 5*x + 6, x))",
    "import random\nprint(random.random())",
    "",
]
STATUSES = {OutcomeStatus.OK, OutcomeStatus.ERROR, OutcomeStatus.TIMEOUT, OutcomeStatus.MEMORY}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with run_server("--workers", "2", "--memory-mib", "256") as running:
        yield running


def scripted() -> ScriptedEngine:
    """Two calls of the program that the problem's number names, and an end."""

    def turn(request: str) -> list[int]:
        problem, sample, number = re.findall(r"\d+", request)[-3:]
        if number == "2":
            return ENCODER.encode(f"So \\boxed{{{sample}}}.")
        return ENCODER.encode(f"Hm.\n```python\n{CODES[int(problem)]}\n```\n```output")

    return ScriptedEngine(turn, lambda _: (3,))


async def played(tool: Any, pool: SandboxPool, problems: int = len(CODES)) -> list[Trajectory]:
    playing = player(scripted(), pool, limit=3000, max_tool_calls=2, speculative_execution=True)
    if tool is not None:
        playing.tools["python"] = tool  # type: ignore[index]
    prompts = [asked(f"p{number}", token_ids=ENCODER.encode("Question\n")) for number in range(problems)]
    trajectories = await play_trajectories(playing, prompts, series=0, samples=2)
    return sorted(trajectories, key=lambda each: (each.group_id, each.sample_index))


async def test_an_episode_is_the_same_token_for_token(server: Server) -> None:
    tool = SandboxFusionTool(SandboxFusionOptions(url=server.url, wall_seconds=LIMITS["cpu_seconds"], max_concurrent=8))
    await tool.start(RunContext())
    with SandboxPool(1, **LIMITS) as pool:
        own = await played(None, pool)
        served = await played(tool, pool)
    await tool.close()
    assert len(own) == 2 * len(CODES)
    statuses = set()
    for one, other in zip(own, served, strict=True):
        assert one.token_ids_T.tolist() == other.token_ids_T.tolist()
        assert one.loss_mask_T.tolist() == other.loss_mask_T.tolist()
        assert [each.observation for each in one.tool_calls] == [each.observation for each in other.tool_calls]
        for mine, theirs in zip(one.tool_calls, other.tool_calls, strict=True):
            first, second = mine.outcome, theirs.outcome
            assert (first.status, first.text, first.error) == (second.status, second.text, second.error)
            assert python_mismatch(second) is None
            statuses.add(second.status)
    assert statuses >= STATUSES


async def test_killed_server_fails_every_episode_and_stops_the_run() -> None:
    with run_server("--workers", "1") as server, SandboxPool(1) as pool:
        options = SandboxFusionOptions(url=server.url, retries=2)
        tool = SandboxFusionTool(options)
        await tool.start(RunContext())
        server.process.kill()
        server.process.wait()
        last = f"the SandboxFusion server at {server.url} returned no outcome in 3 attempts"
        with pytest.raises(ToolUnavailableError, match=rf"\(rollout\.max_failed_fraction = 0\.1\); last error: {last}"):
            await played(tool, pool)
        await tool.close()


async def test_overloaded_server_delays_but_changes_no_episode() -> None:
    with run_server("--workers", "1", "--max-pending-requests", "1") as server, SandboxPool(1, **LIMITS) as pool:
        options = SandboxFusionOptions(
            url=server.url,
            wall_seconds=LIMITS["cpu_seconds"],
            memory_mib=256,
            retries=40,
        )
        tool = SandboxFusionTool(options)
        await tool.start(RunContext())
        served = await played(tool, pool, problems=5)
        refused = server.metric("torl_sandbox_refused_total")
        assert tool.metrics()["retried"] == refused > 0
        await tool.close()
        own = await played(None, pool, problems=5)
    assert [each.token_ids_T.tolist() for each in served] == [each.token_ids_T.tolist() for each in own]
