"""The nodes that a run is on: what starts its roles there, and carries what they are asked."""

from torl.cluster.choosing import CLUSTERS, open_cluster
from torl.cluster.local import LocalCluster
from torl.cluster.options import ClusterConfig
from torl.cluster.protocol import Cluster, ActorHandle
from torl.cluster.ray_cluster import RayCluster

__all__ = ["CLUSTERS", "Cluster", "ClusterConfig", "LocalCluster", "RayCluster", "Role", "open_cluster"]
