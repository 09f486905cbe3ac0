"""A role of a run in a Ray actor, as the controller sees it."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any, NoReturn

from torl.cluster.protocol import Role
from torl.cluster.ray_actor import Raised, Sent
from torl.errors import RoleDiedError


class RayRole(Role):
    """In the controller: the object in an actor."""

    def __init__(self, actor: Any, name: str, node: int) -> None:
        self.name = name
        self.node = node
        self._actor = actor

    async def is_up(self) -> bool:
        """Wait until the actor has a place. False if it was given one on a node that is gone, before Ray noticed."""
        try:
            with self._dying():
                await self._answer(self._actor.hear.remote())
        except RoleDiedError:
            return False
        return True

    async def make(self, make: Callable[[], object]) -> None:
        """Have the object made."""
        with self._dying():
            await self._answer(self._actor.make.remote(Sent(make)))

    async def call(self, method: str, *arguments: Any) -> Any:
        """Have a coroutine method called."""
        with self._dying():
            return _value(await self._answer(self._actor.call.remote(method, arguments)))

    async def stream(self, method: str, *arguments: Any) -> AsyncGenerator[Any, None]:
        """Have an asynchronous generator run."""
        import ray

        items = self._actor.stream.options(num_returns="streaming").remote(method, arguments)
        done = False
        try:
            with self._dying():
                async for item in items:
                    yield _value(await item)
            done = True
        finally:
            if not done:
                ray.cancel(items)

    async def watch(self) -> NoReturn:
        """Wait for the actor's end."""
        with self._dying():
            await self._answer(self._actor.stay.remote())
        raise AssertionError("an actor that stays has ended")

    async def end(self) -> None:
        """Kill the actor. What it has started notices, or was told to end with it."""
        import ray

        if ray.is_initialized():
            ray.kill(self._actor)

    async def _answer(self, reference: Any) -> Any:
        import ray

        try:
            return await reference
        except asyncio.CancelledError:
            ray.cancel(reference)
            raise

    @contextlib.contextmanager
    def _dying(self) -> Iterator[None]:
        import ray

        try:
            yield
        except ray.exceptions.RayTaskError:
            raise  # a defect, with its traceback
        except ray.exceptions.RayError as error:
            raise RoleDiedError(f"{self.name} on node {self.node} is gone (Ray: {type(error).__name__})") from error


def _value(answer: Any) -> Any:
    if isinstance(answer, Raised):
        raise answer.error
    return answer
