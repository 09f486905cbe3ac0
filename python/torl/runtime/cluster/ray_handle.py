"""A role of a run in a Ray actor, as the controller sees it."""

import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from typing import Any, NoReturn

from torl.errors import ActorDiedError
from torl.runtime.cluster.calls import RemoteCalls
from torl.runtime.cluster.messages import CallMessage, ResultMessage
from torl.runtime.cluster.protocol import ActorHandle
from torl.runtime.cluster.ray_actor import Shipment


class RayActorHandle(ActorHandle):
    """In the controller: the object in an actor. Its calls share those of Ray."""

    def __init__(self, actor: Any, name: str, node: int) -> None:
        self.name = name
        self.node = node
        self._actor = actor
        self._calls = RemoteCalls(self._deliver, self._fetch)

    async def wait_until_placed(self) -> bool:
        """Wait until the actor has a place. False if it was given one on a node that is gone, before Ray noticed."""
        try:
            with self._dying():
                await self._actor.hear.remote()
        except ActorDiedError:
            return False
        return True

    async def make(self, make: Callable[[], object]) -> None:
        """Have the object made."""
        with self._dying():
            await self._actor.make.remote(Shipment(make))

    async def call(self, method: str, *arguments: Any) -> Any:
        """Have a coroutine method called."""
        return await self._calls.call(method, *arguments)

    def stream(self, method: str, *arguments: Any) -> AsyncGenerator[Any, None]:
        """Have an asynchronous generator run."""
        return self._calls.stream(method, *arguments)

    async def watch(self) -> NoReturn:
        """Wait for the actor's end."""
        await self._calls.watch()

    async def kill(self) -> None:
        """Kill the actor. What it has started notices, or was told to end with it."""
        import ray

        if ray.is_initialized():
            ray.kill(self._actor)
        self._calls.close(ActorDiedError(f"{self.name} on node {self.node} was ended"))

    async def _deliver(self, asked: list[CallMessage]) -> None:
        with self._dying():
            await self._actor.deliver.remote(asked)

    async def _fetch(self) -> Sequence[ResultMessage]:
        with self._dying():
            told: Sequence[ResultMessage] = await self._actor.answers.remote()
        return told

    @contextlib.contextmanager
    def _dying(self) -> Iterator[None]:
        import ray

        try:
            yield
        except ray.exceptions.RayTaskError:
            raise  # a defect, with its traceback
        except ray.exceptions.RayError as error:
            raise ActorDiedError(f"{self.name} on node {self.node} is gone (Ray: {type(error).__name__})") from error
