"""Episodes that clients of the OpenEnv server begin and forget: they disconnect without notice, or never ask again."""

import asyncio

import pytest
from openenv.core.generic_client import GenericEnvClient

from serving import Server, run_server

pytestmark = pytest.mark.slow

CODE = "x = list(range(1000))\nlen(x)"


async def test_ten_thousand_episodes_that_are_forgotten_cost_bounded_memory() -> None:
    options = ("--workers", "2", "--max-sessions", "50", "--max-session-mib", "8")
    with run_server(*options, command="openenv") as server:
        for number in range(500):
            await forgotten(server, number)
        before = server.resident_mb()
        for number in range(10_000):
            await forgotten(server, number)
        assert server.resident_mb() < before + 40
        async with GenericEnvClient(base_url=server.url) as client:
            assert (await client.step({"code": CODE})).observation["stdout"] == "1000\n"


async def forgotten(server: Server, number: int) -> None:
    """An episode over a separate connection that breaks; every third is a request without one."""
    if number % 3 == 0:
        status, answer = await asyncio.to_thread(server.ask, "/step", {"action": {"code": CODE}})
        assert (status, answer["observation"]["stdout"]) == (200, "1000\n")
        return
    client = GenericEnvClient(base_url=server.url)
    await client.connect()
    await client.reset(seed=number)
    assert (await client.step({"code": CODE})).observation["stdout"] == "1000\n"
    client._ws.transport.abort()
    await client.close()
