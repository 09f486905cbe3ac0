"""What runs in a Ray actor: it holds an object of a run, and calls it. And how values and errors travel."""

import asyncio
import os
import pickle
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

from torl.errors import TorlError

_THREADS = "OMP_NUM_THREADS"


class Holder:
    """In the actor: holds the object, and calls it in the actor's event loop.

    What torl raises is handed over as a value: Ray would put it into an error of its own.
    """

    def __init__(self) -> None:
        self._held: Any = None

    async def hear(self) -> None:
        """Say nothing: the actor is there."""

    async def make(self, make: "Sent") -> None:
        """Make the object."""
        self._held = make.received()()

    async def call(self, method: str, arguments: tuple[Any, ...]) -> Any:
        """What a method returns, or the error that it raises."""
        try:
            return await getattr(self._held, method)(*arguments)
        except TorlError as error:
            return Raised(error)

    async def stream(self, method: str, arguments: tuple[Any, ...]) -> AsyncGenerator[Any, None]:
        """What a generator gives, then the error that it raises."""
        try:
            async with aclosing(getattr(self._held, method)(*arguments)) as items:
                async for item in items:
                    yield item
        except TorlError as error:
            yield Raised(error)

    async def stay(self) -> None:
        """Never returns: who waits for it hears of the actor's end."""
        await asyncio.Future()


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


class Raised:
    """An error on its way."""

    def __init__(self, error: TorlError) -> None:
        self.error = error
