"""The OpenEnv server, as the clients of that library see it."""

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import Any

import pytest
import websockets
from openenv.core.generic_client import GenericEnvClient

from serving import ENDLESS, Server, run_server, until

RUNNING = 'torl_sandbox_runs_now{state="running"}'


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    options = (
        "--workers",
        "1",
        "--cpu-seconds",
        "20",
        "--max-pending-requests",
        "2",
        "--max-sessions",
        "3",
        "--body-mib",
        "1",
    )
    with run_server(*options, command="openenv") as running:
        yield running


@asynccontextmanager
async def episode(server: Server) -> AsyncIterator[Any]:
    async with GenericEnvClient(base_url=server.url) as client:
        yield client


def seen(result: Any) -> tuple[str, str, int]:
    found = result.observation
    return found["stdout"], found["stderr"], found["exit_code"]


async def test_an_episode_keeps_its_state_until_it_is_reset(server: Server) -> None:
    async with episode(server) as client:
        started = await client.reset(seed=3, episode_id="one")
        assert seen(started) == ("", "", 0)
        await client.step({"code": "x = 41"})
        result = await client.step({"code": "print('out')\nx + 1"})
        assert seen(result) == ("out\n42\n", "", 0)
        assert (result.reward, result.done) == (None, False)
        result = await client.step({"code": "1 / 0"})
        assert result.observation["exit_code"] == 1
        assert result.observation["stderr"].endswith("ZeroDivisionError: division by zero\n")
        state = await client.state()
        assert (state["episode_id"], state["step_count"], state["last_exit_code"]) == ("one", 3, 1)
        await client.reset()
        result = await client.step({"code": "x"})
        assert "NameError" in result.observation["stderr"]


async def test_seed_determines_random_parts(server: Server) -> None:
    drawn = []
    for seed in (5, 5, 6):
        async with episode(server) as client:
            await client.reset(seed=seed)
            drawn.append((await client.step({"code": "import random\nrandom.random()"})).observation["stdout"])
    assert drawn[0] == drawn[1] != drawn[2]


async def test_episodes_do_not_see_each_other(server: Server) -> None:
    async with episode(server) as one, episode(server) as other:
        await one.step({"code": "x = 1"})
        assert "NameError" in (await other.step({"code": "x"})).observation["stderr"]
        assert (await one.step({"code": "x"})).observation["stdout"] == "1\n"


@pytest.mark.skipif(not find_spec("coding_env"), reason="OpenEnv's coding environment is not on the package index")
async def test_the_coding_client_of_that_project_works_unchanged(server: Server) -> None:
    from coding_env import CodeAction, CodingEnv

    async with CodingEnv(base_url=server.url) as client:
        result = await client.reset()
        assert (result.observation.exit_code, result.done) == (0, False)
        result = await client.step(CodeAction(code="print(6 * 7)"))
        assert (result.observation.stdout, result.observation.exit_code) == ("42\n", 0)
        state = await client.state()
        assert (state.step_count, state.last_exit_code) == (1, 0)


async def test_timeout_is_an_observation_and_the_episode_continues(server: Server) -> None:
    with run_server("--workers", "1", "--cpu-seconds", "0.5", command="openenv") as hasty:
        async with episode(hasty) as client:
            await client.step({"code": "x = 1"})
            assert (await client.step({"code": ENDLESS})).observation["exit_code"] == 124
            assert (await client.step({"code": "x"})).observation["stdout"] == "1\n"


async def test_a_client_that_goes_away_has_its_run_cancelled(server: Server) -> None:
    client = GenericEnvClient(base_url=server.url)
    await client.connect()
    step = asyncio.create_task(client.step({"code": ENDLESS}))
    await asyncio.to_thread(until, lambda: server.metric(RUNNING) == 1)
    step.cancel()
    await asyncio.gather(step, return_exceptions=True)
    await client.close()
    await asyncio.to_thread(until, lambda: server.metric(RUNNING) == 0, 10)


def test_one_that_breaks_the_connection_of_a_request_too(server: Server) -> None:
    import http.client
    import json

    host, _, port = server.url.removeprefix("http://").partition(":")
    connection = http.client.HTTPConnection(host, int(port))
    body = json.dumps({"action": {"code": ENDLESS}})
    connection.request("POST", "/step", body, {"Content-Type": "application/json"})
    until(lambda: server.metric(RUNNING) == 1)
    connection.close()
    until(lambda: server.metric(RUNNING) == 0, 10)


def test_requests_without_a_connection_of_their_own_begin_anew_each_time(server: Server) -> None:
    status, answer = server.ask("/step", {"action": {"code": "6 * 7"}})
    assert (status, answer["observation"]["stdout"]) == (200, "42\n")
    assert server.ask("/step", {"action": {"program": "1"}})[0] == 422
    assert server.ask("/health")[1] == {"status": "healthy"}


def test_a_request_that_is_too_large_is_refused(server: Server) -> None:
    assert server.ask("/step", {"action": {"code": "#" * (2 << 20)}})[0] == 413


async def test_sessions_beyond_limit_are_refused_and_none_is_lost(server: Server) -> None:
    async with episode(server) as first, episode(server) as second, episode(server) as third:
        for number, client in enumerate((first, second, third)):
            await client.step({"code": f"x = {number}"})
        with pytest.raises(RuntimeError, match="capacity"):
            async with episode(server) as client:
                await client.reset()
        assert [(await client.step({"code": "x"})).observation["stdout"] for client in (first, second, third)] == [
            "0\n", "1\n", "2\n",
        ]  # fmt: skip


async def test_beyond_the_queue_a_step_is_refused_with_the_reason(server: Server) -> None:
    async with episode(server) as first, episode(server) as second:
        steps = [asyncio.create_task(client.step({"code": ENDLESS})) for client in (first, second)]
        await asyncio.to_thread(until, lambda: server.metric("torl_sandbox_requests_open") == 2)
        status, answer = await asyncio.to_thread(server.ask, "/step", {"action": {"code": "1"}})
        assert (status, "2 requests are pending" in answer["detail"]) == (429, True)
        for step in steps:
            step.cancel()
        await asyncio.gather(*steps, return_exceptions=True)


async def test_sigterm_answers_pending_steps_and_closes_idle_episodes() -> None:
    with run_server("--workers", "2", command="openenv") as running:
        async with episode(running) as client, episode(running) as idle:
            await idle.step({"code": "1"})
            slow = "n = 0\nwhile n < 3_000_000: n += 1\nn"
            step = asyncio.create_task(client.step({"code": slow}))
            request = asyncio.create_task(asyncio.to_thread(running.ask, "/step", {"action": {"code": slow}}))
            await asyncio.to_thread(until, lambda: running.metric(RUNNING) == 2)
            ending = asyncio.create_task(asyncio.to_thread(running.terminate))
            assert (await step).observation["stdout"] == "3000000\n"
            assert (await request)[1]["observation"]["stdout"] == "3000000\n"
            assert await ending == 0


async def test_the_grace_period_of_a_step_has_an_end() -> None:
    with run_server("--workers", "1", "--grace-period-seconds", "1", command="openenv") as running:
        client = GenericEnvClient(base_url=running.url)
        await client.connect()
        step = asyncio.create_task(client.step({"code": ENDLESS}))
        await asyncio.to_thread(until, lambda: running.metric(RUNNING) == 1)
        assert await asyncio.to_thread(running.terminate) == 0
        assert isinstance((await asyncio.gather(step, return_exceptions=True))[0], Exception)
        with contextlib.suppress(Exception):
            await client.close()


async def test_an_episode_has_a_new_id_unless_one_is_given(server: Server) -> None:
    async with episode(server) as client:
        ids = []
        for given in ({}, {}, {"episode_id": "mine"}):
            await client.reset(**given)
            ids.append((await client.state())["episode_id"])
        assert ids[2] == "mine"
        assert len({uuid.UUID(each) for each in ids[:2]}) == 2


async def test_an_invalid_reset_is_refused_and_the_episode_continues(server: Server) -> None:
    async with episode(server) as client:
        await client.step({"code": "x = 1"})
        with pytest.raises(RuntimeError, match="seed must be an integer, got 'x'"):
            await client.reset(seed="x")
        assert (await client.step({"code": "x"})).observation["stdout"] == "1\n"


@pytest.mark.parametrize(
    "message",
    ["5", "[" * 200_000, "{", b"binary", '{"n": ' + "1" * 5000 + "}"],
    ids=["number", "deep", "cut", "binary", "long number"],
)
async def test_message_other_than_a_json_object_is_answered(server: Server, message: str | bytes) -> None:
    async with websockets.connect(f"{server.url.replace('http', 'ws')}/ws") as connection:
        await connection.send(message)
        answer = json.loads(await connection.recv())
        assert (answer["type"], answer["data"]["code"]) == ("error", "INVALID_JSON")
        await connection.send(json.dumps({"type": "step", "data": {"code": "6 * 7"}}))
        assert json.loads(await connection.recv())["data"]["observation"]["stdout"] == "42\n"


async def test_a_client_that_goes_away_or_sends_no_text_leaves_no_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    with run_server("--workers", "1", command="openenv") as running:
        for code in (None, ENDLESS):
            client = GenericEnvClient(base_url=running.url)
            await client.connect()
            await client.reset()
            if code is not None:
                await client._ws.send(json.dumps({"type": "step", "data": {"code": code}}))
                await asyncio.to_thread(until, lambda: running.metric(RUNNING) == 1)
            client._ws.transport.abort()
            await asyncio.to_thread(until, lambda: running.metric(RUNNING) == 0)
        async with websockets.connect(f"{running.url.replace('http', 'ws')}/ws") as connection:
            await connection.send(b"\xff", text=True)
            with pytest.raises(websockets.ConnectionClosed):
                await connection.recv()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("path", ["/ws", "/mcp"])
async def test_a_web_page_opens_no_websocket(server: Server, path: str) -> None:
    with pytest.raises(websockets.InvalidStatus, match="403"):
        async with websockets.connect(f"{server.url.replace('http', 'ws')}{path}", origin="http://evil.example"):
            pass


@pytest.mark.parametrize("path", ["/health", "/metrics", "/step", "/nothing"])
def test_a_web_page_gets_no_answer(server: Server, path: str) -> None:
    body = {"action": {"code": "1"}} if path == "/step" else None
    assert server.ask(path, body, headers={"Origin": "http://evil.example"})[0] == 403
    assert server.ask(path, body, headers={"Host": "evil.example"})[0] == 421


def test_sigterm_closes_server_and_leaves_no_worker() -> None:
    with run_server("--workers", "1", command="openenv") as running:
        assert running.ask("/step", {"action": {"code": "1"}})[0] == 200
        assert running.terminate() == 0
