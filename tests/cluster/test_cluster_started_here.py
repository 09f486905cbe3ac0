"""A Ray cluster of this machine that torl starts for itself: the short path of this folder, in `make test`."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest
import ray

from remote_object import Something
from torl.base.errors import ActorDiedError, ClusterError, EngineError, EngineHungError
from torl.base.runtime.cluster import ClusterConfig, RayCluster, open_cluster


@pytest.fixture(autouse=True)
def _started_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "local")


@asynccontextmanager
async def started_here() -> AsyncIterator[RayCluster]:
    """As it is, though runs on it do without its roles."""
    cluster = RayCluster(ClusterConfig(kind="ray", nodes=1))
    try:
        await cluster.start()
        yield cluster
    finally:
        await cluster.close()


async def test_roles_answer_fail_give_up_and_die_in_processes_of_their_own() -> None:
    async with started_here() as cluster:
        assert (cluster.nodes, cluster.is_this_machine) == (1, True)
        assert await cluster.run_on(0, os.getcwd) == os.getcwd()
        assert await cluster.run_on(0, os.nice, 0) == os.nice(0)
        assert await cluster.run_on(0, os.getenv, "OMP_NUM_THREADS") == os.getenv("OMP_NUM_THREADS")
        role = await cluster.start_actor(0, Something, name="something")
        assert await role.call("add", 1, 2) == 3
        with pytest.raises(EngineHungError, match=r"^no token came$"):
            await role.call("hang")
        numbers = role.stream("fail_after_one")
        assert await anext(numbers) == 1
        with pytest.raises(EngineError, match=r"^that was all$"):
            await anext(numbers)
        waiting = asyncio.create_task(role.call("wait"))
        await role.call("add", 1, 1)
        waiting.cancel()
        async with aclosing(role.stream("count")) as counted:
            assert [await anext(counted) for _ in range(3)] == [0, 1, 2]
        while sorted(await role.call("gave_up")) != ["count", "wait"]:
            await asyncio.sleep(0.05)
        watching = asyncio.create_task(role.watch())
        os.kill(await role.call("where"), signal.SIGKILL)
        with pytest.raises(ActorDiedError, match="something on node 0 was lost"):
            await watching
        with pytest.raises(ActorDiedError):
            await role.call("add", 1, 1)
    assert not ray.is_initialized()


def unused_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
    return port


async def test_unreachable_cluster_fails_immediately(monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"127.0.0.1:{unused_port()}"
    for value, error in (
        ("nowhere", "RAY_ADDRESS = 'nowhere' is neither 'auto' nor 'local' nor HOST:PORT"),
        ("host:port", "RAY_ADDRESS = 'host:port' is neither"),
        (address, f"nothing listens at RAY_ADDRESS = '{address}' .* start one with `ray start --head`"),
    ):
        monkeypatch.setenv("RAY_ADDRESS", value)
        with pytest.raises(ClusterError, match=error):
            async with open_cluster(ClusterConfig(kind="ray")):
                pass
