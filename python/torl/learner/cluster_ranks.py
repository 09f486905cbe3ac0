"""Starting learner ranks on the nodes of a cluster: agents start them, and they connect to the controller."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from torl.learner.handshake import RankListener
from torl.learner.rank_launcher import RankSpec
from torl.learner.rank_launchers import RankLaunchers
from torl.learner.ranks import RankGroup, RankProcess
from torl.runtime.cluster import Cluster
from torl.runtime.processes.supervision import run_with_watchers


def rank_specs(nodes: Sequence[int], devices: Sequence[str] | None, log_directory: Path) -> list[RankSpec]:
    """What to start: rank r on node `nodes[r]`, with `devices[r]`."""
    here: dict[int, list[int]] = {node: [] for node in nodes}
    for rank, node in enumerate(nodes):
        here[node].append(rank)
    return [
        RankSpec(
            rank=rank,
            local_rank=here[node].index(rank),
            local_world_size=len(here[node]),
            world_size=len(nodes),
            devices=None if devices is None else tuple(devices[neighbor] for neighbor in here[node]),
            log=(log_directory / f"learner_rank_{rank}.log").resolve(),
        )
        for rank, node in enumerate(nodes)
    ]


async def start_cluster_ranks(
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
        ActorDiedError: a node was lost meanwhile.
    """
    host = cluster.controller_address
    group.on_one_machine = cluster.nodes == 1
    group.host = await cluster.node_address(nodes[0])
    group.nodes = there = RankLaunchers(host)
    await there.start(cluster, nodes, log_directory)
    wanted = rank_specs(nodes, devices, log_directory)
    with RankListener(host) as listener:
        for order, node in zip(wanted, nodes, strict=True):
            await there.agent(node).call("start", order, listener.address, environment)
        accepting = asyncio.to_thread(listener.accept, range(len(nodes)))
        try:
            connections = await run_with_watchers(accepting, *(agent.call("watch") for agent in there.agents))
        finally:
            listener.cancel()
    group.ranks = [RankProcess(order.rank, connections[order.rank], None, order.log) for order in wanted]
    for rank, node in zip(group.ranks, nodes, strict=True):
        there.on_node_loss(node, rank.mark_lost)
    return there.meeting
