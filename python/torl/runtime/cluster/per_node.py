"""One object of a kind on every node: a call goes to the node that its key names, to another while that is lost."""

import asyncio
import logging
import zlib
from collections.abc import Callable
from typing import Any

from torl.errors import ActorDiedError, ClusterError, TorlError
from torl.runtime.cluster.protocol import ActorHandle, Cluster
from torl.runtime.processes.children import first_line
from torl.runtime.processes.supervision import first_error

_logger = logging.getLogger(__name__)


class PerNode:
    """Objects with `start` and `close`, one on each node, that answer equal calls with equal answers.

    What a node is asked when it is lost is asked of another. An object is made again where a machine has taken the
    place of its node.
    """

    def __init__(self, make: Callable[[], object], name: str) -> None:
        """Start nothing yet; `make` is picklable, and `name` is what errors call the objects."""
        self._make = make
        self._name = name
        self._roles: list[ActorHandle | None] = []
        self._keepers: list[asyncio.Task[None]] = []
        self._failure: TorlError | None = None
        self._change = asyncio.Event()

    async def start(self, cluster: Cluster) -> None:
        """Make and start them all; raises what the first that does not start raises."""
        self._roles = [None] * cluster.nodes
        try:
            async with asyncio.TaskGroup() as starts:
                for node in range(cluster.nodes):
                    starts.create_task(self._fill(cluster, node))
        except ExceptionGroup as errors:
            await self.close()
            raise first_error(errors) from errors
        self._keepers = [asyncio.create_task(self._keep(cluster, node)) for node in range(cluster.nodes)]

    async def call(self, key: str, method: str, *arguments: Any) -> Any:
        """Call a method on the node of the key. Equal keys go to one node, as long as it is there."""
        while True:
            role = await self._role_of(zlib.crc32(key.encode("utf-8", "surrogatepass")))
            try:
                return await role.call(method, *arguments)
            except ActorDiedError:
                if self._roles[role.node] is role:
                    self._roles[role.node] = None  # its keeper hears of it as well

    async def call_all(self, method: str) -> list[Any]:
        """What the objects that are there answer."""
        roles = [role for role in self._roles if role is not None]
        answers = await asyncio.gather(*(role.call(method) for role in roles), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, ActorDiedError):
                raise answer
        return [answer for answer in answers if not isinstance(answer, ActorDiedError)]

    async def close(self) -> None:
        """End them all. Safe to call twice."""
        self._failure = self._failure or ClusterError(f"{self._name} was closed")
        self._change.set()
        keepers, self._keepers = self._keepers, []
        for keeper in keepers:
            keeper.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)
        roles, self._roles = [role for role in self._roles if role is not None], []
        await asyncio.gather(*(role.call("close") for role in roles), return_exceptions=True)
        await asyncio.gather(*(role.kill() for role in roles))

    async def _role_of(self, number: int) -> ActorHandle:
        while True:
            if self._failure is not None:
                raise type(self._failure)(str(self._failure)) from self._failure
            if not self._roles:
                raise ClusterError(f"{self._name} is not running: start it first")
            role = self._roles[number % len(self._roles)]
            if role is not None:
                return role
            if there := [role for role in self._roles if role is not None]:
                return there[number // len(self._roles) % len(there)]
            await self._change.wait()

    async def _fill(self, cluster: Cluster, node: int) -> None:
        role = await cluster.start_actor(node, self._make, name=self._name)
        try:
            await role.call("start")
        except BaseException:
            await role.kill()
            raise
        self._roles[node] = role

    async def _keep(self, cluster: Cluster, node: int) -> None:
        """Take the node back whenever it was lost."""
        try:
            while True:
                if (role := self._roles[node]) is not None:
                    try:
                        await role.watch()
                    except ActorDiedError as death:
                        _logger.warning("%s: its work goes to the other nodes", first_line(death))
                        self._roles[node] = None
                try:
                    await self._fill(cluster, node)
                    self._changed()
                except ActorDiedError:
                    continue
        except TorlError as error:
            self._failure = error
            self._changed()

    def _changed(self) -> None:
        self._change.set()
        self._change = asyncio.Event()
