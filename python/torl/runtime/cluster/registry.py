"""The cluster that a configuration names."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any

from torl.errors import ConfigError
from torl.options import ChosenFrom
from torl.runtime.cluster.local import LocalCluster
from torl.runtime.cluster.options import ClusterConfig
from torl.runtime.cluster.protocol import Cluster
from torl.runtime.cluster.ray_cluster import RayCluster

CLUSTERS: MappingProxyType[str, Callable[..., Any]] = MappingProxyType({"local": LocalCluster, "ray": RayCluster})
"""By the names that a configuration calls them."""


@asynccontextmanager
async def open_cluster(config: ClusterConfig) -> AsyncIterator[Cluster]:
    """The nodes of a run, held until the block ends. One node that is this machine is a `LocalCluster` to the run.

    Raises:
        ConfigError: there is no such kind of cluster, or what it takes is not installed.
        ClusterError: its nodes are not there.
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
