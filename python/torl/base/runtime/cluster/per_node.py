"""One remote object per node, with calls routed by key and failover when a node is lost."""

import asyncio
import logging
import zlib
from collections.abc import Callable
from typing import Any

from torl.base.errors import ActorDiedError, ClusterError, TorlError
from torl.base.runtime.cluster.protocol import ActorHandle, Cluster
from torl.base.runtime.processes.children import first_line
from torl.base.runtime.processes.supervision import task_group

_logger = logging.getLogger(__name__)


class PerNode:
    """Objects with `start` and `close`, one on each node, that return equal results for equal calls.

    Calls of a lost node go to another node. The object is made again when the node returns or is replaced.

    Args:
        make: Picklable constructor of an object.
        name: Name of the objects in errors.
    """

    def __init__(self, make: Callable[[], object], name: str) -> None:
        self._make = make
        self._name = name
        self._actors: list[ActorHandle | None] = []
        self._monitors: list[asyncio.Task[None]] = []
        self._failure: TorlError | None = None
        self._change = asyncio.Event()

    async def start(self, cluster: Cluster) -> None:
        """Make and start all objects; raises the first error of an object that does not start."""
        self._actors = [None] * cluster.nodes
        try:
            async with task_group() as starts:
                for node in range(cluster.nodes):
                    starts.create_task(self._start_on(cluster, node))
        except Exception:
            await self.close()
            raise
        self._monitors = [asyncio.create_task(self._monitor(cluster, node)) for node in range(cluster.nodes)]

    async def call(self, key: str, method: str, *arguments: Any) -> Any:
        """Call a method on the node of the key. Equal keys go to the same node while it is available."""
        return (await self.call_named(key, method, *arguments))[1]

    async def call_named(self, key: str, method: str, *arguments: Any) -> tuple[int, Any]:
        """Call a method on the node of the key, and return the node and the result."""
        while True:
            actor = await self._actor_of(zlib.crc32(key.encode("utf-8", "surrogatepass")))
            try:
                return actor.node, await actor.call(method, *arguments)
            except ActorDiedError:
                if self._actors[actor.node] is actor:
                    self._actors[actor.node] = None  # its monitor notices the loss as well

    async def call_all(self, method: str) -> list[Any]:
        """Call a method of all available objects and return their results."""
        actors = [actor for actor in self._actors if actor is not None]
        results = await asyncio.gather(*(actor.call(method) for actor in actors), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, ActorDiedError):
                raise result
        return [result for result in results if not isinstance(result, ActorDiedError)]

    async def close(self) -> None:
        """Close all objects. Safe to call repeatedly."""
        self._failure = self._failure or ClusterError(f"{self._name} was closed")
        self._change.set()
        monitors, self._monitors = self._monitors, []
        for monitor in monitors:
            monitor.cancel()
        await asyncio.gather(*monitors, return_exceptions=True)
        actors, self._actors = [actor for actor in self._actors if actor is not None], []
        await asyncio.gather(*(actor.call("close") for actor in actors), return_exceptions=True)
        await asyncio.gather(*(actor.kill() for actor in actors))

    async def _actor_of(self, number: int) -> ActorHandle:
        while True:
            if self._failure is not None:
                raise type(self._failure)(str(self._failure)) from self._failure
            if not self._actors:
                raise ClusterError(f"{self._name} is not running: start it first")
            actor = self._actors[number % len(self._actors)]
            if actor is not None:
                return actor
            if available := [actor for actor in self._actors if actor is not None]:
                return available[number // len(self._actors) % len(available)]
            await self._change.wait()

    async def _start_on(self, cluster: Cluster, node: int) -> None:
        actor = await cluster.start_actor(node, self._make, name=self._name)
        try:
            await actor.call("start")
        except BaseException:
            await actor.kill()
            raise
        self._actors[node] = actor

    async def _monitor(self, cluster: Cluster, node: int) -> None:
        """Start the object of a node again whenever it is lost."""
        try:
            while True:
                if (actor := self._actors[node]) is not None:
                    try:
                        await actor.watch()
                    except ActorDiedError as death:
                        _logger.warning("%s: its work goes to the other nodes", first_line(death))
                        self._actors[node] = None
                try:
                    await self._start_on(cluster, node)
                    self._notify()
                except ActorDiedError:
                    continue
        except Exception as error:
            if not isinstance(error, TorlError):
                failure = ClusterError(f"{self._name} did not start again on node {node}: {first_line(error)}")
                failure.__cause__, error = error, failure
            self._failure = error
            self._notify()

    def _notify(self) -> None:
        self._change.set()
        self._change = asyncio.Event()
