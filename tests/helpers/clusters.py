"""A cluster of several nodes in one process, whose nodes a test loses and brings back."""

import asyncio
from collections.abc import Callable

from torl.base.runtime.cluster import LocalCluster
from torl.base.runtime.cluster.protocol import LocalActor


class NodesInOneProcess(LocalCluster):
    """Actors on a node are lost with it, and actors placed on a lost node wait for it."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self._there = [asyncio.Event() for _ in range(nodes)]
        self.roles: list[LocalActor] = []
        for event in self._there:
            event.set()

    @property
    def is_remote(self) -> bool:
        return True

    @property
    def nodes(self) -> int:
        return len(self._there)

    async def start_actor(self, node: int, make: Callable[[], object], *, name: str) -> LocalActor:
        await self._there[node].wait()
        role = LocalActor(name, node, make())
        self.roles.append(role)
        return role

    async def lose(self, node: int) -> None:
        self._there[node].clear()
        for role in self.roles:
            if role.node == node:
                await role.kill()

    def bring_back(self, node: int) -> None:
        self._there[node].set()
