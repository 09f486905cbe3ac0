"""An object of a run in a Ray actor: the actor's side, the controller's handle, and the transport of values."""

import asyncio
import contextlib
import os
import pickle
import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from torl.base.errors import ActorDiedError
from torl.base.runtime.cluster.calls import CallDispatcher, CallMessage, RemoteCalls, ResultMessage
from torl.base.runtime.cluster.protocol import ActorHandle

_THREADS = "OMP_NUM_THREADS"


class ActorHost:
    """The actor's side: the object, called in the actor's event loop."""

    def __init__(self) -> None:
        self._dispatcher: CallDispatcher
        self._made = asyncio.Event()

    async def ping(self) -> None:
        """Return once the actor runs."""

    async def make(self, make: "Shipment") -> None:
        """Make the object."""
        self._dispatcher = CallDispatcher(make.unpack()())
        self._made.set()

    async def deliver(self, messages: list[CallMessage]) -> None:
        """Start or cancel calls of the object's methods, without waiting for them."""
        self._dispatcher.submit(messages)

    async def results(self) -> list[ResultMessage]:
        """Wait for results of the calls and return them."""
        await self._made.wait()  # the controller fetches from the start
        return await self._dispatcher.fetch()


class RayActorHandle(ActorHandle):
    """The controller's handle of an object in a Ray actor. Its calls share Ray's calls."""

    def __init__(self, actor: Any, name: str, node: int) -> None:
        self.name = name
        self.node = node
        self._actor = actor
        self._calls = RemoteCalls(self._deliver, self._fetch)

    async def wait_until_placed(self) -> bool:
        """Wait until the actor runs. Return False if Ray placed it on a node that it does not yet know to be lost."""
        try:
            with self._raising_lost():
                await self._actor.ping.remote()
        except ActorDiedError:
            return False
        return True

    async def make(self, make: Callable[[], object]) -> None:
        """Make the object in the actor."""
        with self._raising_lost():
            await self._actor.make.remote(Shipment(make))

    async def call(self, method: str, *arguments: Any) -> Any:
        return await self._calls.call(method, *arguments)

    def stream(self, method: str, *arguments: Any) -> AsyncGenerator[Any, None]:
        return self._calls.stream(method, *arguments)

    async def watch(self) -> NoReturn:
        await self._calls.watch()

    async def kill(self) -> None:
        """Kill the actor. Its child processes notice, or exit with their parent."""
        import ray

        if ray.is_initialized():
            ray.kill(self._actor)
        self._calls.close(ActorDiedError(f"{self.name} on node {self.node} was killed"))

    async def _deliver(self, messages: list[CallMessage]) -> None:
        with self._raising_lost():
            await self._actor.deliver.remote(messages)

    async def _fetch(self) -> Sequence[ResultMessage]:
        with self._raising_lost():
            results: Sequence[ResultMessage] = await self._actor.results.remote()
        return results

    @contextlib.contextmanager
    def _raising_lost(self) -> Iterator[None]:
        import ray

        try:
            yield
        except ray.exceptions.RayTaskError:
            raise  # a defect, with its traceback
        except ray.exceptions.RayError as error:
            raise ActorDiedError(f"{self.name} on node {self.node} was lost (Ray: {type(error).__name__})") from error


class Shipment:
    """A value on its way to a node, with the controller's module path, working directory and number of threads."""

    def __init__(self, value: Any) -> None:
        import ray

        self._path = list(sys.path)
        self._directory = Path.cwd()
        self._threads = os.environ.get(_THREADS)
        self._pickled: bytes = ray.cloudpickle.dumps(value)

    def unpack(self) -> Any:
        """On the node: apply the controller's settings to the process and return the value."""
        if self._directory.is_dir():
            os.chdir(self._directory)
        sys.path += [entry for entry in self._path if entry not in sys.path]
        os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
        os.environ.pop(_THREADS, None)  # Ray sets it to 1 for all child processes
        if self._threads is not None:
            os.environ[_THREADS] = self._threads
        return pickle.loads(self._pickled)
