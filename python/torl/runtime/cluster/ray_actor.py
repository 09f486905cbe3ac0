"""What runs in a Ray actor: it holds an object of a run, and calls it. And how an object to make travels."""

import asyncio
import os
import pickle
import sys
from pathlib import Path
from typing import Any

from torl.runtime.cluster.dispatcher import CallDispatcher
from torl.runtime.cluster.messages import CallMessage, ResultMessage

_THREADS = "OMP_NUM_THREADS"


class ActorHost:
    """In the actor: holds the object, and calls it in the actor's event loop."""

    def __init__(self) -> None:
        self._answers: CallDispatcher
        self._made = asyncio.Event()

    async def ping(self) -> None:
        """Say nothing: the actor is there."""

    async def make(self, make: "Shipment") -> None:
        """Make the object."""
        self._answers = CallDispatcher(make.unpack()())
        self._made.set()

    async def deliver(self, asked: list[CallMessage]) -> None:
        """Take calls of its methods; nothing waits for them here."""
        self._answers.submit(asked)

    async def results(self) -> list[ResultMessage]:
        """What the calls gave, once there is something."""
        await self._made.wait()  # the controller asks from the start
        return await self._answers.fetch()


class Shipment:
    """A value on its way to a node, which first makes the process like the controller's: modules, files, threads."""

    def __init__(self, value: Any) -> None:
        import ray

        self._path = list(sys.path)
        self._directory = Path.cwd()
        self._threads = os.environ.get(_THREADS)
        self._pickled: bytes = ray.cloudpickle.dumps(value)

    def unpack(self) -> Any:
        """On the node: the value."""
        if self._directory.is_dir():
            os.chdir(self._directory)
        sys.path += [place for place in self._path if place not in sys.path]
        os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
        os.environ.pop(_THREADS, None)  # Ray sets it to 1, for all that is started there
        if self._threads is not None:
            os.environ[_THREADS] = self._threads
        return pickle.loads(self._pickled)
