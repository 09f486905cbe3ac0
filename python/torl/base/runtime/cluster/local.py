"""The cluster of this process: actors are ordinary objects."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, NoReturn

from torl.base.errors import ActorDiedError
from torl.base.runtime.cluster.protocol import ActorHandle, Cluster, ClusterConfig, Result


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
