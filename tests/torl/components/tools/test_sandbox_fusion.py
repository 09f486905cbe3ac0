"""The tool "sandbox_fusion": what of an answer is an outcome, and that nothing else of a server ever is one."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import ValidationError

from builders import asked, player
from faulty_server import FaultyServer, Reply, faulty_server, hangs, hangs_up, hangs_up_halfway, ran, result, says
from scripted_engine import ENCODER, ScriptedEngine, ScriptedInterpreter
from torl.base.component import RunContext
from torl.base.errors import SandboxError, ToolUnavailableError
from torl.base.types import OutcomeStatus, ToolRequest
from torl.components.tools import SandboxFusionOptions, SandboxFusionTool
from torl.rollout.calls import EpisodeTools

PROOF = ran(stdout="42\n")
QUICK = {"retries": 2, "wall_seconds": 0.1, "timeout_seconds": 0.3}


@asynccontextmanager
async def started(*replies: Reply, **options: Any) -> AsyncIterator[tuple[SandboxFusionTool, FaultyServer]]:
    """A tool whose server has proved that it works, and replies so from then on."""
    async with faulty_server(PROOF, *replies) as server:
        tool = SandboxFusionTool(SandboxFusionOptions(url=server.url, **(QUICK | options)))
        await tool.start(RunContext())
        server.asked.clear()
        try:
            yield tool, server
        finally:
            await tool.close()


# --- outcomes ---------------------------------------------------------------------------------------------------------

DIVISION = (
    'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    1 / 0\nZeroDivisionError: by zero\n'
)
CHAINED = (
    f"{DIVISION}\nDuring handling of the above exception, another exception occurred:\n\n"
    'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\nmy.Error\n'
)
SYNTAX = '  File "a.py", line 1\n    x = = 1\n        ^\nSyntaxError: invalid syntax\n'
MEMORY = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nMemoryError\n'


@pytest.mark.parametrize(
    ("fields", "status", "text", "error"),
    [
        ({"stdout": "7\n"}, OutcomeStatus.OK, "7\n", None),
        ({"stdout": "7\n", "stderr": "a warning\n"}, OutcomeStatus.OK, "7\n", None),
        ({"code": 1, "stderr": DIVISION}, OutcomeStatus.ERROR, "ZeroDivisionError: by zero", "ZeroDivisionError"),
        ({"code": 1, "stderr": f"noise\n{DIVISION}later\n"}, OutcomeStatus.ERROR, "ZeroDivisionError: by zero",
         "ZeroDivisionError"),
        ({"code": 1, "stderr": CHAINED}, OutcomeStatus.ERROR, "my.Error", "my.Error"),
        ({"code": 1, "stderr": SYNTAX}, OutcomeStatus.ERROR, "SyntaxError: invalid syntax", "SyntaxError"),
        ({"code": 1, "stderr": MEMORY}, OutcomeStatus.MEMORY, "MemoryError", "MemoryError"),
        ({"code": 3}, OutcomeStatus.ERROR, "SystemExit: 3", "SystemExit"),
        ({"code": 1, "stderr": "gave up\n"}, OutcomeStatus.ERROR, "SystemExit: gave up", "SystemExit"),
        ({"code": None, "status": "TimeLimitExceeded", "stdout": "1\n"}, OutcomeStatus.TIMEOUT, "", None),
        ({"code": -11, "stderr": DIVISION}, OutcomeStatus.CRASH, "", None),
        ({"code": -9}, OutcomeStatus.CRASH, "", None),
        ({"code": -25, "stdout": "x" * 9}, OutcomeStatus.OUTPUT_LIMIT, "", None),
        ({"stdout": None, "stderr": None}, OutcomeStatus.OK, "", None),
    ],
)  # fmt: skip
async def test_an_answer_is_read_as_an_outcome(
    fields: dict[str, Any], status: OutcomeStatus, text: str, error: str | None
) -> None:
    async with started(ran(**fields)) as (tool, server):
        outcome = await tool.session(7).call({"code": "1 / 0"})
    assert (outcome.status, outcome.text, outcome.error) == (status, text, error)
    assert outcome.details["stdout"] == (fields.get("stdout") or "")
    assert server.asked == [{"code": "1 / 0", "language": "python", "run_timeout": 0.1, "seed": 7}]


async def test_the_limits_are_sent() -> None:
    async with started(ran(), memory_mib=300) as (tool, server):
        await tool.session(0).call({"code": ""})
    assert server.asked[0]["memory_limit_MB"] == 300


async def test_invalid_code_argument_is_not_sent() -> None:
    async with started(ran()) as (tool, server):
        outcome = await tool.session(0).call({"code": 3})
    assert (outcome.error, server.asked) == ("TypeError", [])


# --- failures that are not outcomes -----------------------------------------------------------------------------------

FAULTS = {
    "hangs up": (hangs_up, "ServerDisconnectedError"),
    "hangs up halfway": (hangs_up_halfway, "ClientPayloadError"),
    "hangs": (hangs, "no reply within 0.3 s"),
    "429": (says({"detail": "busy"}, 429), "HTTP 429: .*busy"),
    "500": (says("no worker", 500), "HTTP 500: no worker"),
    "503": (says("", 503), "HTTP 503"),
    "504": (says("", 504), "HTTP 504"),
    "sandbox error": (says({"status": "SandboxError", "message": "no fork", "run_result": None}), "no fork"),
    "sandbox error of a run": (says({"status": "SandboxError", "run_result": result(status="Error")}), "Error"),
    "no json": (says("<html>"), "a reply that is not JSON: <html>"),
    "nested without end": (says("[" * 100_000), "a reply that is not JSON: \\[\\["),
    "a list": (says([1]), "without an outcome"),
    "no run": (says({"status": "Success", "run_result": None}), "without an outcome"),
    "a run that was none": (says({"status": "Failed", "run_result": result(status="Error")}), "without an outcome"),
    "a number for a text": (says({"status": "Success", "run_result": result() | {"stdout": 3}}), "without an outcome"),
    "no return code": (says({"status": "Success", "run_result": result(code=None)}), "without a return code"),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_is_tried_again_and_then_stops_the_run(fault: str) -> None:
    reply, error = FAULTS[fault]
    async with started(reply) as (tool, server):
        before = tool.metrics()  # a slow machine may need more than one health check
        with pytest.raises(
            ToolUnavailableError, match=f"(?s)returned no outcome in 3 attempts; the last error: .*{error}"
        ):
            await tool.session(0).call({"code": "1"})
        assert len(server.asked) == 3
        after = {name: value - before[name] for name, value in tool.metrics().items()}
        assert after == {"requests": 3, "retried": 2}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_that_passes_is_never_seen(fault: str) -> None:
    reply, _ = FAULTS[fault]
    async with started(reply, reply, ran(stdout="7\n")) as (tool, _):
        outcome = await tool.session(0).call({"code": "print(7)"})
    assert (outcome.status, outcome.text) == (OutcomeStatus.OK, "7\n")


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422])
async def test_a_refusal_stops_the_run_at_once(status: int) -> None:
    async with started(says({"detail": "not so"}, status)) as (tool, server):
        with pytest.raises(SandboxError, match=f"refuses: HTTP {status}: .*not so"):
            await tool.session(0).call({"code": "1"})
    assert len(server.asked) == 1


async def test_a_server_may_say_when_to_come_again() -> None:
    later = says("", 429, **{"Retry-After": "1"})
    async with started(later, ran()) as (tool, _):
        began = time.monotonic()
        assert (await tool.session(0).call({"code": "1"})).ok
    assert time.monotonic() - began >= 1


async def test_requests_at_once_are_bounded() -> None:
    async def slow(request: Any) -> Any:
        await asyncio.sleep(0.01)
        return await ran()(request)

    async with started(slow, max_concurrent=3) as (tool, server):
        calls = [tool.session(0).call({"code": str(number)}) for number in range(30)]
        assert all(outcome.ok for outcome in await asyncio.gather(*calls))
    assert server.most_open == 3


async def test_cancelled_call_closes_its_connection() -> None:
    async with started(hangs, timeout_seconds=60) as (tool, server):
        calls = EpisodeTools({"python": tool}, seed=0)
        calls.speculate(ToolRequest("python", {"code": "1"}))
        while server.open == 0:
            await asyncio.sleep(0.01)
        await calls.close()
        while server.open:
            await asyncio.sleep(0.01)


# --- its start and its checks -----------------------------------------------------------------------------------------


async def test_start_without_a_server_is_a_clear_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
    tool = SandboxFusionTool(SandboxFusionOptions(url=url, **QUICK))
    with pytest.raises(
        ToolUnavailableError,
        match=rf"the SandboxFusion server at {url} returned no outcome in 3 attempts; .*Cannot connect",
    ):
        await tool.start(RunContext())
    await tool.close()


async def test_a_server_that_cannot_compute_is_refused() -> None:
    async with faulty_server(ran(stdout="41\n")) as server:
        tool = SandboxFusionTool(SandboxFusionOptions(url=f"{server.url}/run_code", **QUICK))
        with pytest.raises(SandboxError, match=r"ran 'print\(6 \* 7\)' and gave Outcome"):
            await tool.start(RunContext())
        await tool.close()


async def test_a_check_finds_a_server_that_has_died() -> None:
    async with started(PROOF, hangs_up) as (tool, _):
        await tool.check()
        with pytest.raises(ToolUnavailableError, match="ServerDisconnectedError"):
            await tool.check()


async def test_stopped_tool_raises_a_clear_error() -> None:
    tool = SandboxFusionTool(SandboxFusionOptions(url="http://127.0.0.1:1", **QUICK))
    with pytest.raises(SandboxError, match="not running: start it first"):
        tool.session(0)
    assert tool.metrics() == {}
    await tool.close()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"url": "localhost:8080"}, "url must begin with http:// or https://"),
        ({"url": "http://x", "timeout_seconds": 5}, "timeout_seconds must be longer than wall_seconds"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        SandboxFusionOptions(**options)


# --- in an episode ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("early", [False, True])
async def test_failing_server_fails_the_episode(early: bool) -> None:
    engine = ScriptedEngine(lambda _: ENCODER.encode("```python\nprint(1)\n```\n```output"))
    async with started(says("", 500)) as (tool, server):
        playing = player(engine, ScriptedInterpreter(), max_tool_calls=2, speculative_execution=early)
        playing.tools["python"] = tool  # type: ignore[index]
        with pytest.raises(ToolUnavailableError, match="returned no outcome in 3 attempts"):
            await playing.play(asked(), batch_id=0, sample=0)
        assert len(server.asked) >= 3
