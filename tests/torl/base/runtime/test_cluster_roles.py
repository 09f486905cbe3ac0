"""Actors on nodes with local interfaces: engines, pools, graders. `tests/cluster` has Ray's nodes."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from clusters import NodesInOneProcess
from scripted_engine import ENCODER, ScriptedEngine
from torl._core import StopCondition
from torl.base.component import RunContext
from torl.base.errors import (
    ClusterError,
    ConfigError,
    EngineDiedError,
    EngineError,
    EngineUnusableError,
    WeightTransferError,
)
from torl.base.runtime.cluster import ClusterConfig, LocalCluster, open_cluster
from torl.base.runtime.cluster.per_node import PerNode
from torl.base.runtime.cluster.ray_nodes import bundles_for
from torl.base.types import SampledTurn, SamplingParameters, TurnRequest
from torl.components.engine.remote import RemoteEngine
from torl.components.engine.replicas import Replicas
from torl.components.grading.grader import ClusterGrader
from torl.components.tools import PythonTool
from torl.components.tools.python import PythonOptions
from torl.rollout.startup import machine_of
from torl.run.placement.machine import Machine
from torl.training.checkpoints import require_shared_storage

CODE = "Look:\n```python\nprint(1)\n```\nand so on"
FENCED = StopCondition.marker(b"```output")


def sampling(max_tokens: int = 100) -> SamplingParameters:
    return SamplingParameters(max_tokens=max_tokens, temperature=1.0, top_p=1.0, seed=7)


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def engine_on(cluster: NodesInOneProcess, node: int, engine: ScriptedEngine) -> RemoteEngine:
    log = Path("logs", f"engine_{node}.log")
    return RemoteEngine(
        cluster, lambda _: engine, node=node, name=f"engine {node}", log=log, policy_version=0, receivers=1
    )


async def turn_of(
    engine: RemoteEngine | Replicas | ScriptedEngine, on_block: Callable[[str], None] | None = None
) -> SampledTurn:
    return await engine.sample(TurnRequest("r", [1, 2], sampling(), FENCED), on_block)


async def test_a_turn_and_its_blocks_come_from_a_node_as_from_here() -> None:
    here = ScriptedEngine(lambda _: ENCODER.encode(CODE))
    there = engine_on(NodesInOneProcess(1), 0, ScriptedEngine(lambda _: ENCODER.encode(CODE)))
    await there.start()
    blocks: list[str] = []
    others: list[str] = []
    assert await turn_of(there, blocks.append) == await turn_of(here, others.append)
    assert blocks == others == ["print(1)\n"]
    await there.close()


@pytest.mark.parametrize("on_block", [None, print])
async def test_cancelled_turn_is_cancelled_on_its_node(on_block: Callable[[str], None] | None) -> None:
    engine = ScriptedEngine(lambda _: [5] * 10_000)
    placed = engine_on(NodesInOneProcess(1), 0, engine)
    await placed.start()
    call = asyncio.create_task(turn_of(placed, on_block))
    while engine.open == 0:
        await asyncio.sleep(0)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert engine.open == 0
    assert not [task for task in asyncio.all_tasks() if "Queue.get" in repr(task)]
    await placed.close()


async def test_an_error_of_an_engine_on_a_node_keeps_its_kind() -> None:
    placed = engine_on(NodesInOneProcess(1), 0, ScriptedEngine(lambda _: [5], fail_on="r"))
    await placed.start()
    with pytest.raises(EngineError, match="the engine died") as raised:
        await turn_of(placed)
    assert not isinstance(raised.value, EngineDiedError)
    await placed.close()


async def test_an_engine_dies_with_its_node() -> None:
    cluster = NodesInOneProcess(1)
    placed = engine_on(cluster, 0, ScriptedEngine(lambda _: [5] * 10_000))
    await placed.start()
    call, watched = asyncio.create_task(turn_of(placed)), asyncio.create_task(placed.watch())
    await asyncio.sleep(0)
    await cluster.lose(0)
    for task in (call, watched):
        with pytest.raises(EngineDiedError, match="engine 0 on node 0 was lost"):
            await task
    with pytest.raises(EngineDiedError):
        placed.check()
    await placed.close()


async def test_run_continues_without_a_lost_engine_and_readmits_its_node() -> None:
    cluster = NodesInOneProcess(2)
    engines = [ScriptedEngine(lambda _: ENCODER.encode(CODE)) for _ in range(4)]
    made = iter(engines)
    replicas = Replicas(
        lambda number, _: engine_on(cluster, number, next(made)),
        2,
        max_restarts=1,
        policy_version=0,
        shares_devices=False,
    )
    await replicas.start()
    await cluster.lose(0)
    before = await turn_of(replicas)
    assert engines[1].requests
    cluster.bring_back(0)
    while len(cluster.roles) < 3:
        await asyncio.sleep(0.01)
    engines[1].requests.clear()
    await cluster.lose(1)
    assert await turn_of(replicas) == before
    assert engines[2].requests
    await replicas.close()


async def test_turn_for_one_engine_is_sampled_on_its_node() -> None:
    cluster = NodesInOneProcess(3)
    engines = [ScriptedEngine(lambda _: [5]) for _ in range(3)]
    replicas = Replicas(
        lambda number, _: engine_on(cluster, number, engines[number]),
        3,
        max_restarts=0,
        policy_version=0,
        shares_devices=False,
    )
    await replicas.start()
    requests = [TurnRequest(str(number), [1, 2], sampling(), replica=number) for number in range(3)]
    turns = await asyncio.gather(*map(replicas.sample, requests))
    assert (replicas.replica_count, [turn.replica for turn in turns]) == (3, [0, 1, 2])
    assert [[*engine.requests] for engine in engines] == [["0"], ["1"], ["2"]]
    await replicas.close()


class HalfChanged(ScriptedEngine):
    """Fail to take new weights completely, on request."""

    broken = False

    def check(self) -> None:
        if self.broken:
            raise EngineUnusableError("it did not take the weights of version 1")


async def test_half_transferred_weights_stop_the_run() -> None:
    """An engine may report the failure before the sender has noticed the lost node."""
    cluster, engine = NodesInOneProcess(1), HalfChanged(lambda _: [5])
    replicas = Replicas(
        lambda number, _: engine_on(cluster, number, engine), 1, max_restarts=1, policy_version=0, shares_devices=False
    )
    await replicas.start()
    engine.broken = True
    with pytest.raises(WeightTransferError, match="did not take the weights of version 1"):
        await replicas.watch()
    await replicas.close()


class Echo:
    """Report its location and the arguments it received."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    async def start(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def say(self, word: str) -> tuple[int, str]:
        self.heard.append(word)
        await asyncio.sleep(0)
        return id(self), word


@asynccontextmanager
async def echoes(cluster: NodesInOneProcess) -> AsyncIterator[PerNode]:
    everywhere = PerNode(Echo, "the echo")
    await everywhere.start(cluster)
    yield everywhere
    await everywhere.close()


async def test_equal_keys_go_to_one_node_and_all_nodes_have_work() -> None:
    async with echoes(NodesInOneProcess(3)) as everywhere:
        places = {key: {(await everywhere.call(str(key), "say", "hello"))[0] for _ in range(2)} for key in range(60)}
    assert all(len(found) == 1 for found in places.values())
    assert len(set.union(*places.values())) == 3


async def test_calls_of_a_lost_node_go_to_another_and_the_node_rejoins() -> None:
    cluster = NodesInOneProcess(2)
    async with echoes(cluster) as everywhere:
        calls = [asyncio.create_task(everywhere.call(str(key), "say", str(key))) for key in range(20)]
        await asyncio.sleep(0)
        await cluster.lose(1)
        assert [(await each)[1] for each in calls] == [str(key) for key in range(20)]
        lost = id(cluster.roles[1].target)
        assert lost not in {(await everywhere.call(str(key), "say", "again"))[0] for key in range(20)}
        cluster.bring_back(1)
        while len(await everywhere.call_all("start")) < 2:
            await asyncio.sleep(0)
        assert len({(await everywhere.call(str(key), "say", "again"))[0] for key in range(20)}) == 2
    with pytest.raises(ClusterError, match="was closed"):
        await everywhere.call("key", "say", "late")


async def test_a_node_that_cannot_import_what_it_runs_fails_the_calls() -> None:
    """A replaced node may lack a package that the others have."""
    made: list[Echo] = []

    def make() -> Echo:
        if made:
            raise ImportError("no module named 'echoes'")
        made.append(Echo())
        return made[0]

    cluster = NodesInOneProcess(1)
    everywhere = PerNode(make, "the echo")
    await everywhere.start(cluster)
    await cluster.lose(0)
    cluster.bring_back(0)
    with pytest.raises(ClusterError, match="the echo did not start again on node 0: no module named 'echoes'"):
        await asyncio.wait_for(everywhere.call("key", "say", "hello"), 10)
    await everywhere.close()


async def test_the_sandboxes_of_two_nodes_are_one_interpreter_also_when_one_is_lost() -> None:
    cluster = NodesInOneProcess(2)
    tool = PythonTool(PythonOptions(interpreter_state="episode", workers=2))
    try:
        await tool.start(RunContext(cluster))
        sessions = [tool.session(seed) for seed in range(4)]
        for number, session in enumerate(sessions):
            await session.call({"code": f"x = {number}"})
        forked = sessions[3].fork()
        await forked.call({"code": "x += 100"})
        await cluster.lose(0)
        outputs = [(await session.call({"code": "print(x)"})).text for session in (*sessions, forked)]
        assert outputs == ["0\n", "1\n", "2\n", "3\n", "103\n"]
        await tool.check()
        assert set(tool.metrics()) == {"shared", "retried", "workers_replaced"}
    finally:
        await tool.close()


async def test_a_pair_that_needs_mathematics_is_judged_on_a_node() -> None:
    grader = ClusterGrader(workers=1, timeout_seconds=5.0)
    cluster = NodesInOneProcess(1)
    try:
        await grader.start(cluster)
        assert (await grader.grade_async(r"\sqrt{8}", r"2\sqrt{2}")).correct
        assert not (await grader.grade_async(r"\sqrt{8}", r"3\sqrt{2}")).correct
    finally:
        await grader.close()


class OtherDisks(NodesInOneProcess):
    """Nodes with separate files, from the second on."""

    async def run_on(self, node: int, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*(Path(f"/nodes/{node}{each}") if node else each for each in arguments))


async def test_ranks_that_would_write_checkpoints_elsewhere_are_refused(tmp_path: Path) -> None:
    await require_shared_storage(OtherDisks(2), tmp_path, [0, 0])
    with pytest.raises(ConfigError, match=f"{tmp_path} is not the same on node 1, which has learner ranks"):
        await require_shared_storage(OtherDisks(2), tmp_path, [0, 1])
    assert list(tmp_path.iterdir()) == []


class HiddenGpus(NodesInOneProcess):
    """Nodes of eight GPUs each, as the cluster counts them."""

    def __init__(self, visible: list[int]) -> None:
        super().__init__(len(visible))
        self._visible = visible

    @property
    def reserved_gpus(self) -> int:
        return 8

    async def run_on(self, node: int, function: Callable[..., Any], *arguments: Any) -> Any:
        return Machine.with_gpus(self._visible[node], 80 << 30)


async def test_nodes_that_hide_their_gpus_are_refused() -> None:
    assert len((await machine_of(HiddenGpus([8, 8]))).gpus) == 16
    assert len((await machine_of(HiddenGpus([4]))).gpus) == 4
    for visible, node in ([8, 0], 1), ([0], 0):
        message = f"node {node} of the cluster has 8 GPUs, but .* set RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO=0"
        with pytest.raises(ConfigError, match=message):
            await machine_of(HiddenGpus(visible))
    assert (await machine_of(NodesInOneProcess(2))).gpus == (await machine_of(LocalCluster())).gpus


def test_a_run_reserves_the_nodes_with_most_gpus() -> None:
    def node(cpus: float, gpus: float, alive: bool = True) -> dict[str, object]:
        return {"Alive": alive, "Resources": {"CPU": cpus, "GPU": gpus, "memory": 1e9}}

    nodes = [node(8, 0), node(64, 8), node(96, 8), node(96, 8, alive=False), node(64, 4)]
    assert bundles_for(nodes, None) == [{"CPU": 96, "GPU": 8}, {"CPU": 64, "GPU": 8}]
    assert bundles_for(nodes, 1) == [{"CPU": 96, "GPU": 8}]
    assert bundles_for([node(4, 0), node(0, 0)], None) == [{"CPU": 4}]
    with pytest.raises(ClusterError, match=r"has 2 nodes with 8 GPUs .* needs 3 \(cluster.nodes\)"):
        bundles_for(nodes, 3)


async def test_cluster_without_its_library_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # as where it is not installed
    with pytest.raises(ConfigError, match=r"pip install 'torl\[ray\]'"):
        async with open_cluster(ClusterConfig(kind="ray")):
            pass


@pytest.mark.parametrize(("kind", "said"), [("rai", "did you mean ray"), ("nowhere:Cluster", "cannot be imported")])
def test_unknown_cluster_is_an_invalid_configuration(kind: str, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        ClusterConfig(kind=kind)


class OneNode(NodesInOneProcess):
    """The directory of this process."""

    def __init__(self, config: ClusterConfig) -> None:
        super().__init__(config.nodes or 1)

    @property
    def is_this_machine(self) -> bool:
        return self.nodes == 1


async def test_a_run_on_one_node_that_is_this_machine_is_by_local_processes() -> None:
    for nodes, apart in ((1, False), (2, True)):
        config = ClusterConfig(kind=f"{__name__}:OneNode", nodes=nodes)
        async with open_cluster(config) as cluster:
            assert (cluster.is_remote, cluster.nodes) == (apart, nodes)
