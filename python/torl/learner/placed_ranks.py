"""Learner ranks on the nodes of a cluster: an agent on each node starts them, and they connect to the controller."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from torl.cluster import Cluster, Role
from torl.errors import LearnerDiedError, LearnerError, RoleDiedError
from torl.learner.joining import KEY_VARIABLE, ControllerAddress, RankListener
from torl.learner.ranks import RankGroup, RankProcess
from torl.processes.children import describe_exit, log_tail
from torl.processes.supervision import watched

_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class RankOrder:
    """A rank that an agent is to start."""

    rank: int
    local_rank: int
    local_world_size: int
    world_size: int
    devices: tuple[str, ...] | None
    """The GPUs of all ranks of its node, as CUDA_VISIBLE_DEVICES names them."""
    log: Path

    def environment(self) -> dict[str, str]:
        """What torch.distributed and DeepSpeed read."""
        environment = {
            "RANK": str(self.rank),
            "LOCAL_RANK": str(self.local_rank),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_WORLD_SIZE": str(self.local_world_size),
            "TORCHELASTIC_USE_AGENT_STORE": "True",  # the controller has the store at which the ranks meet
        }
        if self.devices is not None:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(self.devices)
        return environment


class RankAgent:
    """On a node: starts the ranks of it. They end with the agent's process."""

    def __init__(self) -> None:
        self._started: dict[int, tuple[subprocess.Popen[bytes], Path]] = {}

    async def start(self, order: RankOrder, controller: ControllerAddress, environment: Mapping[str, str]) -> None:
        """Start a rank. In the thread of the event loop: it is killed when that ends."""
        order.log.parent.mkdir(parents=True, exist_ok=True)
        with order.log.open("ab") as output:
            process = subprocess.Popen(  # noqa: ASYNC220 - a thread of asyncio would end, and the rank with it
                [
                    *(sys.executable, "-m", "torl.learner.worker"),
                    *("--rank", str(order.rank), "--world-size", str(order.world_size)),
                    *("--controller", f"{controller.host}:{controller.port}", "--parent", str(os.getpid())),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(sys.path),
                    **environment,
                    **order.environment(),
                    KEY_VARIABLE: controller.key,
                },
            )
        self._started[order.rank] = (process, order.log)

    async def watch(self) -> NoReturn:
        """Wait until a rank ends; raises LearnerDiedError with the end of its log."""
        while True:
            for rank, (process, log) in self._started.items():
                if (status := process.poll()) is not None:
                    end = f"end of {log}:\n{log_tail(log)}"
                    raise LearnerDiedError(f"learner rank {rank} {describe_exit(status)}; {end}")
            await asyncio.sleep(_LOOK_SECONDS)


def orders(nodes: Sequence[int], devices: Sequence[str] | None, log_directory: Path) -> list[RankOrder]:
    """What to start: rank r on node `nodes[r]`, with `devices[r]`."""
    here: dict[int, list[int]] = {node: [] for node in nodes}
    for rank, node in enumerate(nodes):
        here[node].append(rank)
    return [
        RankOrder(
            rank=rank,
            local_rank=here[node].index(rank),
            local_world_size=len(here[node]),
            world_size=len(nodes),
            devices=None if devices is None else tuple(devices[neighbor] for neighbor in here[node]),
            log=(log_directory / f"learner_rank_{rank}.log").resolve(),
        )
        for rank, node in enumerate(nodes)
    ]


async def start_placed_ranks(
    group: RankGroup,
    cluster: Cluster,
    nodes: Sequence[int],
    devices: Sequence[str] | None,
    *,
    log_directory: Path,
    environment: Mapping[str, str],
) -> str:
    """Fill `group` with ranks on the nodes of a cluster; returns where they meet, for torch.distributed.

    Raises:
        LearnerError: a rank did not start.
        RoleDiedError: a node was lost meanwhile.
    """
    host = cluster.controller_host
    group.on_one_machine = cluster.nodes == 1
    group.host = await cluster.host(nodes[0])
    group.meeting = _store(host)
    agents = {
        node: await cluster.place(node, RankAgent, name="the agent of the learner's ranks")
        for node in sorted(set(nodes))
    }
    group.agents = list(agents.values())
    wanted = orders(nodes, devices, log_directory)
    with RankListener(host) as listener:
        for order, node in zip(wanted, nodes, strict=True):
            await agents[node].call("start", order, listener.address, environment)
        accepting = asyncio.to_thread(listener.accept, range(len(nodes)))
        try:
            connections = await watched(accepting, *(agent.call("watch") for agent in agents.values()))
        finally:
            listener.give_up()
    group.ranks = [RankProcess(order.rank, connections[order.rank], None, order.log) for order in wanted]
    for node, agent in agents.items():
        ranks = [rank for rank, place in zip(group.ranks, nodes, strict=True) if place == node]
        group.watching.append(asyncio.create_task(_notice(agent, ranks)))
    return f"tcp://{host}:{group.meeting.port}"


async def _notice(agent: Role, ranks: Sequence[RankProcess]) -> None:
    """A node that is lost closes no connection."""
    try:
        await agent.watch()
    except RoleDiedError:
        for rank in ranks:
            rank.replies.put_nowait(None)
            rank.closed.set()


def _store(host: str) -> Any:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    try:
        return TCPStore(host, 0, None, True, wait_for_workers=False)
    except RuntimeError as error:
        raise LearnerError(f"the controller could not listen on {host}: {error}") from error
