"""What runs in a Ray actor: it holds an object of a run, and calls it. And how an object to make travels."""

import asyncio
import os
import pickle
import sys
from pathlib import Path
from typing import Any

from torl.cluster.answers import Answers
from torl.cluster.messages import Asked, Told

_THREADS = "OMP_NUM_THREADS"


class Holder:
    """In the actor: holds the object, and calls it in the actor's event loop."""

    def __init__(self) -> None:
        self._answers: Answers
        self._made = asyncio.Event()

    async def hear(self) -> None:
        """Say nothing: the actor is there."""

    async def make(self, make: "Sent") -> None:
        """Make the object."""
        self._answers = Answers(make.received()())
        self._made.set()

    async def deliver(self, asked: list[Asked]) -> None:
        """Take calls of its methods; nothing waits for them here."""
        self._answers.take(asked)

    async def answers(self) -> list[Told]:
        """What the calls gave, once there is something."""
        await self._made.wait()  # the controller asks from the start
        return await self._answers.fetch()


class Sent:
    """A value on its way to a node, which first makes the process like the controller's: modules, files, threads."""

    def __init__(self, value: Any) -> None:
        import ray

        self._path = list(sys.path)
        self._directory = Path.cwd()
        self._threads = os.environ.get(_THREADS)
        self._pickled: bytes = ray.cloudpickle.dumps(value)

    def received(self) -> Any:
        """On the node: the value."""
        if self._directory.is_dir():
            os.chdir(self._directory)
        sys.path += [place for place in self._path if place not in sys.path]
        os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
        os.environ.pop(_THREADS, None)  # Ray sets it to 1, for all that is started there
        if self._threads is not None:
            os.environ[_THREADS] = self._threads
        return pickle.loads(self._pickled)
