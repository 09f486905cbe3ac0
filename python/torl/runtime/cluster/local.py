"""The cluster that is this process alone: a role is the object itself."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, NoReturn

from torl.errors import ActorDiedError
from torl.runtime.cluster.options import ClusterConfig
from torl.runtime.cluster.protocol import ActorHandle, Cluster, Result


class LocalActor(ActorHandle):
    """An object of this process, which can be lost for a test of what then happens."""

    def __init__(self, name: str, node: int, held: Any) -> None:
        self.name = name
        self.node = node
        self.target = held
        self._gone = asyncio.Event()

    async def call(self, method: str, *arguments: Any) -> Any:
        """Call it, and give up when it is gone."""
        return await self._unless_gone(getattr(self.target, method)(*arguments))

    async def stream(self, method: str, *arguments: Any) -> AsyncGenerator[Any, None]:
        """Iterate over it, and give up when it is gone."""
        async with aclosing(getattr(self.target, method)(*arguments)) as items:
            while True:
                try:
                    item = await self._unless_gone(anext(items))
                except StopAsyncIteration:
                    return
                yield item

    async def _unless_gone(self, answer: Awaitable[Any]) -> Any:
        task, gone = asyncio.ensure_future(_awaited(answer)), asyncio.ensure_future(self._gone.wait())
        try:
            await asyncio.wait([task, gone], return_when=asyncio.FIRST_COMPLETED)
            if self._gone.is_set():
                raise ActorDiedError(f"{self.name} on node {self.node} is gone")
            return task.result()
        finally:
            for each in (task, gone):
                each.cancel()
            await asyncio.gather(task, gone, return_exceptions=True)

    async def watch(self) -> NoReturn:
        """Wait until it is lost."""
        await self._gone.wait()
        raise ActorDiedError(f"{self.name} on node {self.node} is gone")

    async def kill(self) -> None:
        """The object has nothing that would outlive it."""
        self._gone.set()


class LocalCluster(Cluster):
    """This process, where every part of a run is made directly."""

    def __init__(self, config: ClusterConfig | None = None) -> None:
        """There is nothing to say of it."""

    @property
    def is_remote(self) -> bool:
        """No: the parts are objects of this process."""
        return False

    async def run_on(self, node: int, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call it here, in a thread."""
        return await asyncio.to_thread(function, *arguments)

    async def start_actor(self, node: int, make: Callable[[], object], *, name: str) -> LocalActor:
        """Make it here."""
        return LocalActor(name, node, make())


async def _awaited(answer: Awaitable[Any]) -> Any:
    return await answer
