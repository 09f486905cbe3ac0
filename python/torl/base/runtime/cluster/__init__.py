"""The machines of a run. Actors are objects on its nodes, called from the controller."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from torl.base.runtime.cluster.protocol import CLUSTER, CLUSTERS, ActorHandle, Cluster, ClusterConfig, LocalCluster
from torl.base.runtime.cluster.ray_cluster import RayCluster

__all__ = ["CLUSTERS", "ActorHandle", "Cluster", "ClusterConfig", "LocalCluster", "RayCluster", "open_cluster"]


@asynccontextmanager
async def open_cluster(config: ClusterConfig) -> AsyncIterator[Cluster]:
    """Reserve the nodes of a run until the block ends. A single node that is this machine becomes a `LocalCluster`.

    Raises:
        ConfigError: The dependencies of `cluster.kind` are not installed.
        ClusterError: The nodes cannot be reached or reserved.
    """
    cluster: Cluster = CLUSTER.find(config.kind)(config)
    try:
        await cluster.start()
        yield LocalCluster() if cluster.is_this_machine else cluster
    finally:
        await cluster.close()
