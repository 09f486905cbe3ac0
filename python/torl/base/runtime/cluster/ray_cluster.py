"""The nodes of a Ray cluster. Ray finds the nodes, carries the calls and reports losses.

A run reserves its nodes as one placement group, with a bundle for each node. When a node is lost, Ray looks for another
one for its bundle: the same node after its return, or a new one. Until then, calls to that node wait. torl's own
placement divides the devices of a node, so its actors request no resources beyond the bundle.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from torl.base.errors import ActorDiedError, ClusterError, ConfigError, TorlError
from torl.base.runtime.cluster.protocol import Cluster, ClusterConfig, Result
from torl.base.runtime.cluster.ray_actor import ActorHost, RayActorHandle, Shipment
from torl.base.runtime.cluster.ray_nodes import START_RAY_HINT, nodes_of, ray_address, require_listener, reserve_nodes
from torl.base.runtime.processes.children import first_line
from torl.base.trust import require_trust

_RETRY_SECONDS = 1.0


class RayCluster(Cluster):
    """The nodes that a run reserves in a Ray cluster."""

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config
        self._group: Any = None
        self._nodes = 0
        self._gpus = 0
        self._is_this_machine = False
        self._connected = False

    @property
    def is_this_machine(self) -> bool:
        """Whether Ray's only node is this machine. Its calls would cost a millisecond of CPU time for nothing."""
        return self._is_this_machine

    @property
    def reserved_gpus(self) -> int:
        return self._gpus

    @property
    def nodes(self) -> int:
        return self._nodes

    async def start(self) -> None:
        """Connect to Ray, or start it, and reserve the nodes."""
        require_trust(address := ray_address(), "connected to")
        ray = _import_ray()
        self._connected = not ray.is_initialized()  # false if the user's program has connected already
        if self._connected:
            await require_listener(address)
            self._connect(ray, address)
        self._group, bundles = await reserve_nodes(self._config)
        self._nodes, self._gpus = len(bundles), int(bundles[0].get("GPU", 0))
        self._is_this_machine = nodes_of(self._group) == [ray.get_runtime_context().get_node_id()]

    def _connect(self, ray: Any, address: str) -> None:
        """Connect in this thread, which lives as long as the process: Ray's child processes exit with the thread."""
        # A cluster that torl starts sends no usage reports to Ray's makers.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # Ray's default gives its processes and their children the lowest scheduling priority.
        os.environ.setdefault("RAY_worker_niceness", "0")
        options = {"include_dashboard": False} if address == "local" else {}
        on_signal = signal.getsignal(signal.SIGTERM)
        try:
            ray.init(address, namespace="torl", log_to_driver=False, configure_logging=False, **options)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise ClusterError(
                f"no Ray cluster could be reached at RAY_ADDRESS = {address!r}: {first_line(error)}; {START_RAY_HINT}"
            ) from error
        finally:
            if threading.current_thread() is threading.main_thread():  # there, Ray replaces the handler
                signal.signal(signal.SIGTERM, on_signal)
                signal.siginterrupt(signal.SIGTERM, False)

    async def run_on(self, node: int, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function as a Ray task in the bundle of the node."""
        import ray

        task: Any = ray.remote(_call).options(num_cpus=0, max_retries=0, scheduling_strategy=self._in_bundle(node))
        try:
            result: Result = await task.remote(Shipment((function, arguments)))
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, TorlError):
                raise error.cause from error
            raise ClusterError(f"node {node}: {error.cause}") from error
        except ray.exceptions.RayError as error:
            raise ActorDiedError(f"node {node} was lost (Ray: {type(error).__name__})") from error
        return result

    async def node_address(self, node: int) -> str:
        return await self.run_on(node, _ray_address)

    @property
    def controller_address(self) -> str:
        return _ray_address()

    async def start_actor(self, node: int, make: Callable[[], object], *, name: str) -> RayActorHandle:
        """Make an object in a separate Ray actor."""
        import ray

        actor: Any = ray.remote(ActorHost).options(
            num_cpus=0, max_restarts=0, enable_task_events=False, scheduling_strategy=self._in_bundle(node)
        )
        while True:
            handle = RayActorHandle(actor.remote(), name, node)
            try:
                if await handle.wait_until_placed():
                    await handle.make(make)
                    return handle
            except BaseException:
                await handle.kill()
                raise
            await asyncio.sleep(_RETRY_SECONDS)

    async def close(self) -> None:
        """Release the nodes, and disconnect from Ray if `start` connected."""
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


def _call(shipment: Shipment) -> Any:
    """On a node: unpack a function with its arguments and call it."""
    function, arguments = shipment.unpack()
    return function(*arguments)


def _ray_address() -> str:
    import ray

    address: str = ray.util.get_node_ip_address()
    return address


def _import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ConfigError("cluster.kind = 'ray' requires Ray: pip install 'torl[ray]'") from error
    return ray
