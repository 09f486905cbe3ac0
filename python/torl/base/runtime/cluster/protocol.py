"""The protocol of clusters: start actors on nodes, call them, watch them, kill them.

`LocalCluster` is this process alone, whose actors are ordinary objects.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from types import MappingProxyType
from typing import Any, NoReturn, Protocol, TypeVar

from pydantic import field_validator

from torl.base.errors import ActorDiedError
from torl.base.options import ChosenFrom, NonNegativeInt, PositiveInt, Section

Result = TypeVar("Result")


CLUSTERS = MappingProxyType(
    {
        "local": "torl.base.runtime.cluster.protocol:LocalCluster",
        "ray": "torl.base.runtime.cluster.ray_cluster:RayCluster",
    }
)
"""Clusters by their names in a configuration."""
CLUSTER = ChosenFrom(CLUSTERS, "cluster", positional_count=1)


class ClusterConfig(Section):
    """The machines of a run. docs/clusters.md has the commands."""

    kind: str = "local"
    """"local": processes on this machine. "ray": the nodes of the Ray cluster that this machine belongs to, or of the
    environment variable RAY_ADDRESS: HOST:PORT of another head node, or "local" to start a cluster on this machine for
    this run only. Or package.module:Name."""
    nodes: PositiveInt | None = None
    """Number of nodes. Unset takes all nodes that have as many GPUs as the best node."""
    max_restarts: NonNegativeInt = 3
    """Maximum number of automatic restarts: of each engine, also on this machine alone, and of the run from its latest
    checkpoint after a node with learner ranks is lost."""

    @field_validator("kind")
    @classmethod
    def _kind_exists(cls, kind: str) -> str:
        CLUSTER.find(kind)
        return kind


class ActorHandle(Protocol):
    """The controller's handle of an actor: an object on a node of a cluster.

    Every method raises `ActorDiedError` if the actor's process exits or its node is lost. A `TorlError` that a method
    of the object raises arrives unchanged.

    Attributes:
        name: Name of the actor in errors.
        node: Number of its node.
    """

    name: str
    node: int

    async def call(self, method: str, *arguments: Any) -> Any:
        """Call a coroutine method of the object and return its result. Cancelling the call cancels the method."""
        ...

    def stream(self, method: str, *arguments: Any) -> AsyncGenerator[Any, None]:
        """Iterate over an asynchronous generator of the object. Closing the iterator closes the generator."""
        ...

    async def watch(self) -> NoReturn:
        """Wait until the actor is lost, then raise `ActorDiedError`."""
        ...

    async def kill(self) -> None:
        """Kill the actor and every process that it started. Safe to call repeatedly, and after the actor was lost."""
        ...


class Cluster(Protocol):
    """The nodes of a run, numbered from 0. A lost node keeps its number for the machine that replaces it.

    The class is constructed with the section `[cluster]` of the configuration
    (`torl.base.runtime.cluster.ClusterConfig`).
    """

    @property
    def is_remote(self) -> bool:
        """Whether actors run in other processes, perhaps on other machines."""
        return True

    @property
    def is_this_machine(self) -> bool:
        """Whether the only node is the machine of this process, so that the run starts processes directly."""
        return False

    @property
    def reserved_gpus(self) -> int:
        """Number of GPUs that are reserved on each node. 0 on a cluster that does not count them."""
        return 0

    @property
    def nodes(self) -> int:
        """Number of nodes, including lost ones."""
        return 1

    async def start(self) -> None:
        """Connect to the nodes and reserve them.

        Raises:
            ClusterError: The nodes cannot be reached, or other runs hold them.
        """
        return

    async def run_on(self, node: int, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function on a node and return its result. Function, arguments and result are picklable.

        Raises:
            ActorDiedError: The node was lost during the call.
        """
        ...

    async def node_address(self, node: int) -> str:
        """Return the address at which the other nodes reach a node."""
        return "127.0.0.1"

    @property
    def controller_address(self) -> str:
        """Address at which the nodes reach this process."""
        return "127.0.0.1"

    async def start_actor(self, node: int, make: Callable[[], object], *, name: str) -> ActorHandle:
        """Make an object on a node. While the node is lost, wait for its replacement.

        Args:
            node: Number of the node.
            make: Picklable constructor, called on the node in an event loop that lives as long as the object.
            name: Name of the actor in errors.

        Raises:
            ActorDiedError: The node was lost during the call.
        """
        ...

    async def close(self) -> None:
        """Release the nodes, which kills all remaining actors. Safe to call repeatedly."""
        return


class LocalActor(ActorHandle):
    """An object of this process. Killing it simulates the loss of its node."""

    def __init__(self, name: str, node: int, target: Any) -> None:
        self.name = name
        self.node = node
        self.target = target
        self._lost = asyncio.Event()

    async def call(self, method: str, *arguments: Any) -> Any:
        return await self._unless_lost(getattr(self.target, method)(*arguments))

    async def stream(self, method: str, *arguments: Any) -> AsyncGenerator[Any, None]:
        async with aclosing(getattr(self.target, method)(*arguments)) as items:
            while True:
                try:
                    item = await self._unless_lost(anext(items))
                except StopAsyncIteration:
                    return
                yield item

    async def watch(self) -> NoReturn:
        await self._lost.wait()
        self._raise_lost()

    async def kill(self) -> None:
        self._lost.set()

    async def _unless_lost(self, result: Awaitable[Any]) -> Any:
        task, lost = asyncio.ensure_future(_awaited(result)), asyncio.ensure_future(self._lost.wait())
        try:
            await asyncio.wait([task, lost], return_when=asyncio.FIRST_COMPLETED)
            if self._lost.is_set():
                self._raise_lost()
            return task.result()
        finally:
            for each in (task, lost):
                each.cancel()
            await asyncio.gather(task, lost, return_exceptions=True)

    def _raise_lost(self) -> NoReturn:
        raise ActorDiedError(f"{self.name} on node {self.node} was lost")


class LocalCluster(Cluster):
    """This process as the only node of a run."""

    def __init__(self, config: ClusterConfig | None = None) -> None:
        pass

    @property
    def is_remote(self) -> bool:
        return False

    async def run_on(self, node: int, function: Callable[..., Result], *arguments: Any) -> Result:
        return await asyncio.to_thread(function, *arguments)

    async def start_actor(self, node: int, make: Callable[[], object], *, name: str) -> LocalActor:
        return LocalActor(name, node, make())


async def _awaited(result: Awaitable[Any]) -> Any:
    return await result
