"""Roles on the nodes of a real Ray cluster: calls, errors, cancellation, death, and a node that comes back."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest
import pytest_asyncio

from ray_nodes import RayNodes
from remote_object import Something
from torl.base.errors import ActorDiedError, ClusterError, ConfigError, EngineError, EngineHungError, LearnerDiedError
from torl.base.runtime.cluster import ClusterConfig, RayCluster
from torl.base.runtime.cluster.logs import gather_logs
from torl.learner.launch import rank_specs
from torl.learner.rank_connection import RankListener
from torl.learner.rank_launcher import RankLauncher

pytestmark = pytest.mark.cluster


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(nodes: RayNodes) -> AsyncIterator[RayCluster]:
    cluster = RayCluster(ClusterConfig(kind="ray"))
    await cluster.start()
    yield cluster
    await cluster.close()


async def test_the_log_and_the_stacks_of_a_rank_come_from_its_node(cluster: RayCluster, tmp_path: Path) -> None:
    log = tmp_path / "learner_rank_0.log"
    agent = await cluster.start_actor(2, RankLauncher, name="the agent")
    gathering = asyncio.create_task(gather_logs(agent, tmp_path))
    (order,) = rank_specs([2], None, tmp_path)
    with RankListener(cluster.controller_address) as listener:
        await agent.call("start", order, listener.address, {})
        connection = (await asyncio.to_thread(listener.accept, [0]))[0]
    await agent.call("dump_stacks")  # of a rank that waits for its setup
    while not log.exists() or "in recv" not in log.read_text():
        await asyncio.sleep(0.05)
    connection.close()
    with pytest.raises(LearnerDiedError, match=f"learner rank 0 exited with status 1; end of {log}:\n[^$]*has exited"):
        await agent.call("watch")
    await agent.call("close")
    await gathering
    assert log.read_text().endswith("the controller has exited\n")
    await agent.kill()


def refuse() -> None:
    raise ConfigError("not here")


async def test_a_role_answers_from_each_node(cluster: RayCluster) -> None:
    roles = [await cluster.start_actor(node, Something, name="something") for node in range(3)]
    assert [await role.call("add", 1, 2) for role in roles] == [3, 3, 3]
    assert len({await role.call("where") for role in roles} | {os.getpid()}) == 4
    for role in roles:
        await role.kill()


async def test_errors_of_torl_come_as_they_are_and_defects_with_their_traceback(cluster: RayCluster) -> None:
    role = await cluster.start_actor(0, Something, name="something")
    with pytest.raises(EngineHungError, match=r"^no token came$") as raised:
        await role.call("hang")
    assert type(raised.value) is EngineHungError
    with pytest.raises(ZeroDivisionError, match="in divide"):
        await role.call("divide")
    numbers = role.stream("fail_after_one")
    assert await anext(numbers) == 1
    with pytest.raises(EngineError, match=r"^that was all$"):
        await anext(numbers)
    with pytest.raises(ConfigError, match=r"^not here$"):
        await cluster.run_on(1, refuse)
    await role.kill()


async def test_cancelled_call_is_cancelled_on_the_node(cluster: RayCluster) -> None:
    role = await cluster.start_actor(0, Something, name="something")
    waiting = asyncio.create_task(role.call("wait"))
    await role.call("add", 1, 1)
    waiting.cancel()
    async with aclosing(role.stream("count")) as numbers:
        assert [await anext(numbers) for _ in range(3)] == [0, 1, 2]
    while sorted(await role.call("gave_up")) != ["count", "wait"]:
        await asyncio.sleep(0.05)
    await role.kill()


async def test_lost_node_is_reported_to_all_waiting_and_replaced(cluster: RayCluster, nodes: RayNodes) -> None:
    role = await cluster.start_actor(1, Something, name="something")
    other = await cluster.start_actor(0, Something, name="another")

    async def counted() -> None:
        async for _ in role.stream("count"):
            pass

    waiting = [asyncio.create_task(each) for each in (role.watch(), role.call("wait"), counted())]
    await role.call("add", 1, 1)
    await asyncio.to_thread(nodes.kill, 1)
    for each in waiting:
        with pytest.raises(ActorDiedError, match="something on node 1 was lost"):
            await each
    assert await other.call("add", 2, 2) == 4
    again = asyncio.create_task(cluster.start_actor(1, Something, name="something"))
    nodes.bring_back()  # Ray starts nodes in the main thread only
    assert await (await again).call("add", 3, 3) == 6


@pytest.mark.usefixtures("nodes")
async def test_missing_nodes_are_awaited_and_then_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torl.base.runtime.cluster.ray_nodes._STARTUP_TIMEOUT_SECONDS", 1.0)
    cluster = RayCluster(ClusterConfig(kind="ray", nodes=5))
    with pytest.raises(ClusterError, match="has 3 nodes with 0 GPUs and a core or more, and the run needs 5"):
        await cluster.start()
