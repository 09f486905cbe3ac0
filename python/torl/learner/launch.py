"""Start the ranks of a learner, as processes on this machine or on the nodes of a cluster. No torch."""

import asyncio
import os
import socket
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from torl.base.errors import DataError
from torl.base.runtime.cluster import Cluster
from torl.base.runtime.processes.supervision import run_with_watchers
from torl.learner.messages import LearnerSetup, RankSetup
from torl.learner.rank_connection import RankListener, RankProcess
from torl.learner.rank_launcher import RankLaunchers, RankSpec, spawn_worker
from torl.learner.ranks import RankGroup

# Settings of the libraries that a rank uses.
_ENVIRONMENT = {
    # By default OpenMP's threads spin while they wait for each other. On a busy machine a step took 15 times as long.
    "OMP_WAIT_POLICY": "PASSIVE",
    "TORCHDYNAMO_DISABLE": "1",  # nothing is compiled, and importing the compiler takes seconds
    "TOKENIZERS_PARALLELISM": "false",
    # glibc raises this threshold to 32 MiB by itself. In its heap, activations that checkpointing keeps then split the
    # blocks of a layer's temporary tensors: a model of 1.5 B parameters took 4 GB more.
    "MALLOC_MMAP_THRESHOLD_": str(4 << 20),
}


async def start_ranks(
    setup: LearnerSetup, log_directory: Path, devices: Sequence[str] | None, cluster: Cluster, nodes: Sequence[int]
) -> RankGroup:
    """Start all ranks and load the model on them. Arguments and errors are those of `Learner.start`."""
    learner = setup.learner
    world_size = learner.ranks or 1
    if world_size % learner.sequence_parallel:
        raise DataError(f"learner.sequence_parallel = {learner.sequence_parallel} does not divide {world_size} ranks")
    threads = learner.cpu_threads or max(1, len(os.sched_getaffinity(0)) // world_size)
    on_gpu = devices is not None
    group = RankGroup(learner.timeout_seconds)
    if cluster.is_remote:
        try:
            init_method = await start_cluster_ranks(
                group,
                cluster,
                nodes,
                devices,
                log_directory=log_directory,
                environment=_ENVIRONMENT | {"OMP_NUM_THREADS": str(threads)},
            )
            await group.set_up(RankSetup(setup, threads, init_method, on_gpu))
        except BaseException:
            await group.kill()
            raise
        return group
    init_method = f"file://{group.scratch.open()}/store"  # needs no free port
    try:
        for rank in range(world_size):
            environment = _ENVIRONMENT | _local_environment(rank, world_size, devices)
            group.ranks.append(
                start_rank(rank, world_size, log_directory=log_directory, environment=environment, threads=threads)
            )
        await group.set_up(RankSetup(setup, threads, init_method, on_gpu))
    except BaseException:
        await group.kill()
        raise
    return group


def start_rank(
    rank: int, world_size: int, *, log_directory: Path, environment: Mapping[str, str], threads: int
) -> RankProcess:
    """Start a rank on this machine.

    Call it in a thread that lives as long as the controller: the rank is killed when that thread ends.

    Args:
        rank: Number of the rank.
        world_size: Number of ranks.
        log_directory: Directory of the log `learner_rank_R.log`.
        environment: Environment variables in addition to those of this process.
        threads: Number of OpenMP threads.
    """
    log_directory.mkdir(parents=True, exist_ok=True)
    log = log_directory / f"learner_rank_{rank}.log"
    ours, theirs = socket.socketpair()
    with ours, theirs, log.open("ab") as output:
        process = spawn_worker(
            rank,
            world_size,
            ("--connection", str(theirs.fileno())),
            {**environment, "OMP_NUM_THREADS": str(threads)},
            output,
            pass_fds=[theirs.fileno()],
        )
        return RankProcess(rank, Connection(ours.detach()), process, log)


def _local_environment(rank: int, world_size: int, devices: Sequence[str] | None) -> dict[str, str]:
    spec = RankSpec(rank, rank, world_size, world_size, None if devices is None else tuple(devices), Path())
    return spec.environment() | {"GLOO_SOCKET_IFNAME": "lo"}  # this machine's name may not resolve


def rank_specs(nodes: Sequence[int], devices: Sequence[str] | None, log_directory: Path) -> list[RankSpec]:
    """Return the ranks to start: rank r on node `nodes[r]`, with `devices[r]`."""
    ranks_on: dict[int, list[int]] = {node: [] for node in nodes}
    for rank, node in enumerate(nodes):
        ranks_on[node].append(rank)
    return [
        RankSpec(
            rank=rank,
            local_rank=ranks_on[node].index(rank),
            local_world_size=len(ranks_on[node]),
            world_size=len(nodes),
            devices=None if devices is None else tuple(devices[neighbor] for neighbor in ranks_on[node]),
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
    """Start ranks on the nodes of a cluster, add them to `group`, and return the init method of torch.distributed.

    Raises:
        LearnerError: A rank did not start.
        ActorDiedError: A node was lost.
    """
    host = cluster.controller_address
    group.machines = cluster.nodes
    group.host = await cluster.node_address(nodes[0])
    group.nodes = launchers = RankLaunchers(host)
    await launchers.start(cluster, nodes, log_directory)
    specs = rank_specs(nodes, devices, log_directory)
    with RankListener(host) as listener:
        for spec, node in zip(specs, nodes, strict=True):
            await launchers.launcher(node).call("start", spec, listener.address, environment)
        accepting = asyncio.to_thread(listener.accept, range(len(nodes)))
        try:
            connections = await run_with_watchers(
                accepting, *(launcher.call("watch") for launcher in launchers.launchers)
            )
        finally:
            listener.cancel()
    group.ranks = [RankProcess(spec.rank, connections[spec.rank], None, spec.log) for spec in specs]
    for rank, node in zip(group.ranks, nodes, strict=True):
        launchers.on_node_loss(node, rank.mark_lost)
    return launchers.init_method
