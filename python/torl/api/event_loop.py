"""An event loop in its own thread, so that synchronous calls work where another loop is running."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from torl.runtime.processes.supervision import first_error

Result = TypeVar("Result")


class BackgroundLoop:
    """An event loop in its own thread. Close it, or use it as a context manager."""

    def __init__(self) -> None:
        """Start the thread."""
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="torl")
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine in the loop and return its result. Ctrl-C cancels it and waits until it has ended."""
        ended: Future[Result] = Future()
        tasks: list[asyncio.Task[None]] = []

        async def run() -> None:
            try:
                ended.set_result(await work)
            except BaseException as error:
                ended.set_exception(first_error(error))

        def cancel() -> None:
            for task in tasks:
                task.cancel()

        self._loop.call_soon_threadsafe(lambda: tasks.append(self._loop.create_task(run())))
        try:
            wait([ended])
        except KeyboardInterrupt:
            self._loop.call_soon_threadsafe(cancel)
            wait([ended])
            raise
        return ended.result()

    def close(self) -> None:
        """Stop the loop and end its thread. May be called twice."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._closing.set)
            self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        await self._closing.wait()

    def __enter__(self) -> "BackgroundLoop":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
