"""MCP servers as tools, by real processes: their tools and answers, and their calls when they die."""

import asyncio
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from places import HELPERS
from torl.base.component import RunContext
from torl.base.errors import ConfigError, ToolUnavailableError
from torl.base.types import OutcomeStatus
from torl.components.tools import McpServer, Tool, make_tool
from torl.components.tools.mcp import McpOptions
from torl.run.config import RolloutConfig

SMALL = shlex.join([sys.executable, str(HELPERS / "mcp_server.py")])
HOSTILE = shlex.join([sys.executable, str(HELPERS / "hostile_mcp_server.py")])
ENVIRONMENT = {"PYTHONPATH": os.pathsep.join(sys.path)}


@asynccontextmanager
async def offered(mcp: str, **options: Any) -> AsyncIterator[dict[str, Tool]]:
    """Tools that a section `[rollout.tools.small]` offers to a model."""
    section = {"mcp": mcp, "env": ENVIRONMENT, **options}
    tool = make_tool("small", RolloutConfig.model_validate({"tools": {"small": section}}).tools["small"])
    try:
        await tool.start(RunContext())
        yield dict(tool.provided_tools("small"))
    finally:
        await tool.close()


async def called(tool: Tool, **arguments: Any) -> tuple[OutcomeStatus, str]:
    outcome = await tool.session(0).call(arguments)
    return outcome.status, outcome.text


async def test_a_servers_tools_have_its_schemas_and_its_answers() -> None:
    async with offered(SMALL) as tools:
        assert list(tools) == ["add", "process", "refuse", "draw", "die_while"]
        assert tools["add"].description == "Add two numbers."
        assert Draft202012Validator(tools["add"].parameters).is_valid({"a": 1, "b": 2})
        assert not Draft202012Validator(tools["add"].parameters).is_valid({"a": 1})
        assert await called(tools["add"], a=1, b=2) == (OutcomeStatus.OK, "3")
        assert await called(tools["draw"]) == (OutcomeStatus.OK, "a dot\n[image/png]")
        for arguments in ({"a": "x"}, {}):
            status, text = await called(tools["add"], **arguments)
            assert status is OutcomeStatus.ERROR
            assert "Field required" in text
        assert (await called(tools["refuse"], what="bread"))[0] is OutcomeStatus.ERROR
        many = await asyncio.gather(*(called(tools["add"], a=number, b=1) for number in range(50)))
        assert [text for _, text in many] == [str(number + 1) for number in range(50)]


async def test_only_named_tools_of_a_server_are_known_before_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts are made of it."""
    monkeypatch.setattr("torl.components.tools.wrappers.MAX_RESULT_CHARACTERS", 1)
    section = {"mcp": SMALL, "env": ENVIRONMENT, "tools": ["add"]}
    tool = make_tool("small", RolloutConfig.model_validate({"tools": {"small": section}}).tools["small"])
    before = tool.provided_tools("small")
    assert list(before) == ["add"]
    assert "a" in before["add"].parameters["properties"]
    await tool.start(RunContext())
    assert tool.provided_tools("small")["add"].parameters == before["add"].parameters
    assert await called(tool.provided_tools("small")["add"], a=5, b=6) == (OutcomeStatus.OK, "1...")
    await tool.close()


async def test_a_tool_that_the_server_does_not_have_is_named() -> None:
    with pytest.raises(ConfigError, match=r"has no tool 'ad'; did you mean add\?"):
        async with offered(SMALL, tools=["ad"]):
            pass


async def test_unexpected_results_are_reported_and_disturb_no_call() -> None:
    async with offered(HOSTILE, retries=0) as tools:
        waiting = asyncio.create_task(called(tools["wait"], until="broken"))
        with pytest.raises(ToolUnavailableError, match="Invalid structured content returned by tool broken"):
            await called(tools["broken"])
        assert await waiting == (OutcomeStatus.OK, "waited")
        with pytest.raises(ToolUnavailableError, match="Invalid structured content"):
            await called(tools["broken"])
        assert tools["broken"].metrics()["connected"] == 1
        schema = tools["depth"].parameters
        node = {"value": 1, "next": {"value": 2}}
        assert Draft202012Validator(schema).is_valid({"node": node})
        assert await called(tools["depth"], node=node) == (OutcomeStatus.OK, "2")
        assert await called(tools["structured"]) == (OutcomeStatus.OK, '{"number": 1}')
        assert await called(tools["picture"]) == (OutcomeStatus.OK, "[image/png]")
        assert await called(tools["nothing"]) == (OutcomeStatus.OK, "")
        assert await called(tools["long"]) == (OutcomeStatus.OK, "x" * 20_000 + "...")


async def test_failed_restart_is_tried_once_for_all_waiting_calls(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    async with offered(shlex.join([*shlex.split(HOSTILE), str(starts)]), retries=0) as tools:
        starts.touch()
        with pytest.raises(ToolUnavailableError, match="returned no outcome"):
            await called(tools["die"])
        waiting = await asyncio.gather(*(called(tools["nothing"]) for _ in range(20)), return_exceptions=True)
        assert {type(each) for each in waiting} == {ToolUnavailableError}
        assert all("no MCP server at" in str(each) for each in waiting)
        assert starts.read_text() == "once\n"
        starts.unlink()
        given_up = asyncio.create_task(called(tools["nothing"]))
        others = asyncio.create_task(called(tools["picture"]))
        await asyncio.sleep(0)
        given_up.cancel()
        assert await others == (OutcomeStatus.OK, "[image/png]")
        assert tools["nothing"].metrics()["connected"] == 2


async def test_a_command_that_died_is_started_again_for_the_next_try(tmp_path: Path) -> None:
    async with offered(SMALL) as tools:
        (tmp_path / "once").touch()
        assert await called(tools["die_while"], path=str(tmp_path / "once")) == (OutcomeStatus.OK, "alive")
        assert tools["die_while"].metrics()["retried"] == 1
        assert tools["add"].metrics()["connected"] == 2
        _, number = await called(tools["process"])
        os.kill(int(number), signal.SIGKILL)
        assert await asyncio.gather(*(called(tools["add"], a=1, b=b) for b in range(3))) == [
            (OutcomeStatus.OK, str(1 + b)) for b in range(3)
        ]
        assert tools["add"].metrics()["connected"] == 3


@pytest.mark.parametrize("mcp", ["true", "http://127.0.0.1:9/mcp"])
async def test_missing_server_fails_at_start(mcp: str) -> None:
    with pytest.raises(ToolUnavailableError, match=f"no MCP server at '{mcp}'"):
        async with offered(mcp):
            pass


@pytest.mark.parametrize(
    ("mcp", "message"),
    [
        ("no_such_command --at all", r"'no_such_command --at all': there is no such program"),
        ("true 'all", "cannot be read: No closing quotation"),
        ("", "'': there is no such program"),
    ],
)
def test_missing_command_fails_before_anything_starts(mcp: str, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"the MCP server's command .*{message}"):
        McpServer(McpOptions(mcp=mcp))


async def test_a_secret_is_inherited_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY_OF_A_SERVER", "secret")
    monkeypatch.setenv("OTHER_KEY", "secret")
    async with offered(SMALL, env=ENVIRONMENT | {"KEY_OF_A_SERVER": True}) as tools:
        _, number = await called(tools["process"])
        variables = Path(f"/proc/{number}/environ").read_bytes().split(b"\0")
    assert b"KEY_OF_A_SERVER=secret" in variables
    assert b"OTHER_KEY=secret" not in variables
    monkeypatch.delenv("KEY_OF_A_SERVER")
    with pytest.raises(ConfigError, match="inherits KEY_OF_A_SERVER, which is not set here"):
        McpServer(McpOptions(mcp=SMALL, env={"KEY_OF_A_SERVER": True}))


async def test_a_command_that_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torl.components.tools.retry.STARTUP_TIMEOUT_SECONDS", 0.2)
    silent = shlex.join([sys.executable, "-S", "-c", "import sys; sys.stdin.read()"])
    with pytest.raises(ToolUnavailableError, match=r"the MCP server .* did not reply within 0\.2 s"):
        async with offered(silent):
            pass


async def test_a_server_over_http_that_goes_and_comes_back() -> None:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    address = f"http://127.0.0.1:{port}/mcp"
    process = await listening(port)
    try:
        async with offered(address, env={}, retries=0) as tools:
            assert await called(tools["add"], a=1, b=2) == (OutcomeStatus.OK, "3")
            process.kill()
            process.wait()
            with pytest.raises(ToolUnavailableError, match="returned no outcome"):
                await called(tools["add"], a=1, b=2)
            process = await listening(port)
            assert await called(tools["add"], a=1, b=3) == (OutcomeStatus.OK, "4")
    finally:
        process.kill()
        process.wait()


async def listening(port: int) -> "subprocess.Popen[bytes]":
    """The small server, once it answers on a port."""
    process = subprocess.Popen([*shlex.split(SMALL), str(port)], env=os.environ | ENVIRONMENT)
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            assert process.poll() is None
            await asyncio.sleep(0.02)
        else:
            writer.close()
            return process


async def test_sandbox_mcp_server_is_a_tool() -> None:
    """The sandbox through its MCP server, with the sessions that it offers."""
    command = shlex.join([sys.executable, "-m", "torl_sandbox", "mcp", "--workers", "1"])
    async with offered(command) as tools:
        assert list(tools) == ["run_python"]
        assert set(tools["run_python"].parameters["properties"]) == {"code", "session", "files"}
        assert await called(tools["run_python"], code="print(6 * 7)") == (OutcomeStatus.OK, "42")
        status, text = await called(tools["run_python"], code="1 / 0")
        assert (status, text.splitlines()[-1]) == (OutcomeStatus.ERROR, "ZeroDivisionError: division by zero")
        _, text = await called(tools["run_python"], code="x = 41", session="new")
        assert text.startswith("[no output]\n[session ")
        session = text.removeprefix("[no output]\n[session ").removesuffix("]")
        assert (await called(tools["run_python"], code="x + 1", session=session))[1].startswith("42")
