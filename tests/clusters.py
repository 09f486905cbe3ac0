"""A cluster of several nodes in one process, whose nodes a test loses and brings back."""

import asyncio
from collections.abc import Callable

from torl.cluster import LocalCluster
from torl.cluster.local import LocalRole


class NodesInOneProcess(LocalCluster):
    """What is placed on a node is lost with it, and what is placed on a lost node waits for it."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self._there = [asyncio.Event() for _ in range(nodes)]
        self.roles: list[LocalRole] = []
        for event in self._there:
            event.set()

    @property
    def apart(self) -> bool:
        return True

    @property
    def nodes(self) -> int:
        return len(self._there)

    async def place(self, node: int, make: Callable[[], object], *, name: str) -> LocalRole:
        await self._there[node].wait()
        role = LocalRole(name, node, make())
        self.roles.append(role)
        return role

    async def lose(self, node: int) -> None:
        self._there[node].clear()
        for role in self.roles:
            if role.node == node:
                await role.end()

    def bring_back(self, node: int) -> None:
        self._there[node].set()
