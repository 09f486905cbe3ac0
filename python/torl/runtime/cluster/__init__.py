"""The machines of a run. Actors are objects on its nodes, called from the controller."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any

from torl.errors import ConfigError
from torl.options import ChosenFrom
from torl.runtime.cluster.local import LocalCluster
from torl.runtime.cluster.protocol import ActorHandle, Cluster, ClusterConfig
from torl.runtime.cluster.ray_cluster import RayCluster

__all__ = ["CLUSTERS", "ActorHandle", "Cluster", "ClusterConfig", "LocalCluster", "RayCluster", "open_cluster"]

CLUSTERS: MappingProxyType[str, Callable[..., Any]] = MappingProxyType({"local": LocalCluster, "ray": RayCluster})
"""Clusters by their names in a configuration."""


@asynccontextmanager
async def open_cluster(config: ClusterConfig) -> AsyncIterator[Cluster]:
    """Reserve the nodes of a run until the block ends. A single node that is this machine becomes a `LocalCluster`.

    Raises:
        ConfigError: `cluster.kind` is unknown, or its dependencies are not installed.
        ClusterError: The nodes cannot be reached or reserved.
    """
    try:
        kind = ChosenFrom(CLUSTERS, "cluster").find(config.kind)
    except ValueError as error:
        raise ConfigError(f"cluster.kind: {error}") from error
    cluster: Cluster = kind(config)
    try:
        await cluster.start()
        yield LocalCluster() if cluster.is_this_machine else cluster
    finally:
        await cluster.close()
