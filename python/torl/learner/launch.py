"""Starting the ranks of a learner, as processes on this machine or on the nodes of a cluster. No torch."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from torl.errors import DataError
from torl.learner.cluster_ranks import start_cluster_ranks
from torl.learner.messages import LearnerSetup, RankSetup
from torl.learner.ranks import RankGroup, start_rank
from torl.runtime.cluster import Cluster

# What the libraries of a rank read from its environment.
_QUIET = {
    # By default OpenMP's threads spin while they wait for each other: beside busy processes that took 15 times as
    # long for a step.
    "OMP_WAIT_POLICY": "PASSIVE",
    "TORCHDYNAMO_DISABLE": "1",  # nothing is compiled, and importing the compiler takes seconds
    "TOKENIZERS_PARALLELISM": "false",
}


async def start_ranks(
    setup: LearnerSetup, log_directory: Path, devices: Sequence[str] | None, cluster: Cluster, nodes: Sequence[int]
) -> RankGroup:
    """All ranks, with the model loaded; arguments and errors are those of `Learner.start`."""
    learner = setup.learner
    world_size = learner.ranks or 1
    if world_size % learner.sequence_parallel:
        raise DataError(f"learner.sequence_parallel = {learner.sequence_parallel} does not divide {world_size} ranks")
    threads = learner.cpu_threads or max(1, len(os.sched_getaffinity(0)) // world_size)
    group = RankGroup(learner.timeout_seconds)
    if cluster.is_remote:
        try:
            master = await start_cluster_ranks(
                group,
                cluster,
                nodes,
                devices,
                log_directory=log_directory,
                environment=_QUIET | {"OMP_NUM_THREADS": str(threads)},
            )
            await group.set_up(RankSetup(setup, threads, master))
        except BaseException:
            await group.kill()
            raise
        return group
    with tempfile.TemporaryDirectory(prefix="torl-learner-") as meeting:
        master = f"file://{meeting}/store"  # needs no free port
        try:
            for rank in range(world_size):
                environment = _QUIET | _local_environment(rank, world_size, devices)
                group.ranks.append(
                    start_rank(rank, world_size, log_directory=log_directory, environment=environment, threads=threads)
                )
            await group.set_up(RankSetup(setup, threads, master))
        except BaseException:
            await group.kill()
            raise
    return group


def _local_environment(rank: int, world_size: int, devices: Sequence[str] | None) -> dict[str, str]:
    """What torch.distributed and DeepSpeed read from the environment of a rank."""
    environment = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "GLOO_SOCKET_IFNAME": "lo",  # the ranks are on this machine; its name may not resolve
    }
    if devices is not None:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
    return environment
