"""An event loop in its own thread, so that synchronous calls work where another loop is running."""

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import Any, TypeVar

from torl.base.runtime.processes.supervision import first_error

Result = TypeVar("Result")


class BackgroundLoop:
    """An event loop in its own thread. Close it, or use it as a context manager."""

    def __init__(self) -> None:
        """Start the thread."""
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        self._closed: Future[None] = Future()
        threading.Thread(target=self._run, name="torl").start()

    def call(self, work: Coroutine[Any, Any, Result], *, cancellable: bool = True) -> Result:
        """Run a coroutine in the loop and return its result. Ctrl-C raises KeyboardInterrupt once it has ended.

        Args:
            work: Coroutine to run.
            cancellable: Whether the first Ctrl-C cancels the coroutine. Further ones have no effect.
        """
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

        with _deferred_interrupt(lambda: cancellable and self._loop.call_soon_threadsafe(cancel)):
            self._loop.call_soon_threadsafe(lambda: tasks.append(self._loop.create_task(run())))
            wait([ended])
        return ended.result()

    def close(self) -> None:
        """Stop the loop and end its thread. May be called twice."""
        with _deferred_interrupt(lambda: None):
            if not self._closed.done():
                self._loop.call_soon_threadsafe(self._closing.set)
            # Not `Thread.join`: in CPython 3.11, an interrupted join marks a running thread as ended.
            wait([self._closed])

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve())
        finally:
            self._closed.set_result(None)

    async def _serve(self) -> None:
        await self._closing.wait()

    def __enter__(self) -> "BackgroundLoop":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def _deferred_interrupt(on_first: Callable[[], object]) -> Iterator[None]:
    """Raise the KeyboardInterrupt of a Ctrl-C at the end of the block, and call `on_first` at the first one."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or handler in (None, signal.SIG_IGN):
        yield  # Python runs signal handlers in the main thread only
        return
    received = threading.Event()

    def note(*_: object) -> None:
        if not received.is_set():
            received.set()
            on_first()

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if received.is_set():
        raise KeyboardInterrupt
