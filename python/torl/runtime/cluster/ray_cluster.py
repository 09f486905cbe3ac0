"""The nodes of a Ray cluster. Ray carries the calls, finds the nodes, and tells of deaths.

A run reserves its nodes as one placement group, a bundle for each node. When a node dies Ray looks for another one for
its bundle: the node that comes back, or a new one. Until then whatever is asked of that node waits. The devices of a
node are divided by torl's own placement, so its actors ask for no resources beyond the bundle.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from torl.errors import ActorDiedError, ClusterError, ConfigError, TorlError
from torl.runtime.cluster.options import ClusterConfig
from torl.runtime.cluster.protocol import Cluster, Result
from torl.runtime.cluster.ray_actor import ActorHost, Shipment
from torl.runtime.cluster.ray_address import START_RAY_HINT, require_listener
from torl.runtime.cluster.ray_handle import RayActorHandle
from torl.runtime.cluster.ray_reservation import nodes_of, reserve_nodes
from torl.runtime.processes.children import first_line

_RETRY_SECONDS = 1.0


class RayCluster(Cluster):
    """The nodes that a run takes of a Ray cluster."""

    def __init__(self, config: ClusterConfig) -> None:
        """Reach nothing yet."""
        self._config = config
        self._group: Any = None
        self._nodes = 0
        self._is_this_machine = False
        self._connected = False

    @property
    def is_this_machine(self) -> bool:
        """Where a call through Ray would reach nobody else: it takes a millisecond of CPU time."""
        return self._is_this_machine

    @property
    def nodes(self) -> int:
        """Bundles of the placement group."""
        return self._nodes

    async def start(self) -> None:
        """Connect to Ray, or start it, and reserve the nodes."""
        ray = _import_ray()
        self._connected = not ray.is_initialized()  # or the program that runs here has done so before
        if self._connected:
            await require_listener(self._config.address)
            self._connect(ray)
        self._group, self._nodes = await reserve_nodes(self._config)
        self._is_this_machine = nodes_of(self._group) == [ray.get_runtime_context().get_node_id()]

    def _connect(self, ray: Any) -> None:
        """In the thread that lives as long as this process: what Ray starts here ends with the thread."""
        # Nothing is reported to Ray's makers by a cluster that torl starts.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # By default Ray's processes, and what they start, let all others go first.
        os.environ.setdefault("RAY_worker_niceness", "0")
        own = {"include_dashboard": False} if self._config.address == "local" else {}
        on_signal = signal.getsignal(signal.SIGTERM)
        try:
            ray.init(self._config.address, namespace="torl", log_to_driver=False, configure_logging=False, **own)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise ClusterError(
                f"no Ray cluster could be reached at cluster.address = {self._config.address!r}: "
                f"{first_line(error)}; {START_RAY_HINT}"
            ) from error
        finally:
            if threading.current_thread() is threading.main_thread():  # where Ray takes this signal for itself
                signal.signal(signal.SIGTERM, on_signal)
                signal.siginterrupt(signal.SIGTERM, False)

    async def run_on(self, node: int, function: Callable[..., Result], *arguments: Any) -> Result:
        """Run it as a task in the bundle of the node."""
        import ray

        task: Any = ray.remote(_called).options(num_cpus=0, max_retries=0, scheduling_strategy=self._in_bundle(node))
        try:
            answer: Result = await task.remote(Shipment((function, arguments)))
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, TorlError):
                raise error.cause from error
            raise ClusterError(f"node {node}: {error.cause}") from error
        except ray.exceptions.RayError as error:
            raise ActorDiedError(f"node {node} is gone (Ray: {type(error).__name__})") from error
        return answer

    async def node_address(self, node: int) -> str:
        """The address that Ray knows a node by."""
        return await self.run_on(node, _own_address)

    @property
    def controller_address(self) -> str:
        """The address that Ray knows this machine by."""
        return _own_address()

    async def start_actor(self, node: int, make: Callable[[], object], *, name: str) -> RayActorHandle:
        """Make it in an actor of its own."""
        import ray

        actor: Any = ray.remote(ActorHost).options(
            num_cpus=0, max_restarts=0, enable_task_events=False, scheduling_strategy=self._in_bundle(node)
        )
        while True:
            role = RayActorHandle(actor.remote(), name, node)
            try:
                if await role.wait_until_placed():
                    await role.make(make)
                    return role
            except BaseException:
                await role.kill()
                raise
            await asyncio.sleep(_RETRY_SECONDS)

    async def close(self) -> None:
        """Give the nodes back, and leave Ray if it was not there before."""
        group, self._group = self._group, None
        connected, self._connected = self._connected, False
        if group is None and not connected:
            return
        import ray

        if group is not None and ray.is_initialized():
            ray.util.remove_placement_group(group)
        if connected:
            ray.shutdown()

    def _in_bundle(self, node: int) -> Any:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        return PlacementGroupSchedulingStrategy(self._group, node, placement_group_capture_child_tasks=False)


def _called(sent: Shipment) -> Any:
    """On a node."""
    function, arguments = sent.unpack()
    return function(*arguments)


def _own_address() -> str:
    import ray

    address: str = ray.util.get_node_ip_address()
    return address


def _import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ConfigError("cluster.kind = 'ray' needs Ray: pip install 'torl[ray]'") from error
    return ray
