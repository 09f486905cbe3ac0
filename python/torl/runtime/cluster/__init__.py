"""The nodes that a run is on: what starts its roles there, and carries what they are asked."""

from torl.runtime.cluster.local import LocalCluster
from torl.runtime.cluster.options import ClusterConfig
from torl.runtime.cluster.protocol import ActorHandle, Cluster
from torl.runtime.cluster.ray_cluster import RayCluster
from torl.runtime.cluster.registry import CLUSTERS, open_cluster

__all__ = ["CLUSTERS", "ActorHandle", "Cluster", "ClusterConfig", "LocalCluster", "RayCluster", "open_cluster"]
