"""Programs that run in parts: what one part leaves, the next one finds."""

import math
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Unpack

import torl._core as _core
from torl.sandbox.execution import Execution
from torl.sandbox.options import CellOptions
from torl.types import OutcomeStatus

_Result = tuple[Execution, _core.SandboxState | None]
_Request = Callable[[str, CellOptions, _core.SandboxState, float], _core.SandboxRequest]
_Run = Callable[[_core.SandboxRequest], _Result]
_RunAsync = Callable[[_core.SandboxRequest], Awaitable[_Result]]


class Session:
    """A program whose parts run one after the other, as the cells of a notebook: made by `SandboxPool.session`.

    The state between two runs is a value: where memory differs from a fresh interpreter's. Any worker continues from
    it, a worker that dies takes nothing with it, and a fork costs nothing. A run that ends in an exception keeps what
    it did before, and so does one that is interrupted because its time is over; one that has to be stopped (it goes on
    all the same for 0.1 s, or prints too much, or crashes) keeps what its whole statements had done.

    One part runs at a time; to run two from the same state, fork the session.
    """

    def __init__(self, request: _Request, run: _Run, run_async: _RunAsync, cpu_seconds: float | None) -> None:
        if cpu_seconds is not None and not cpu_seconds > 0:
            raise ValueError(f"cpu_seconds must be a positive number of seconds, not {cpu_seconds}")
        self._request = request
        self._run = run
        self._run_async = run_async
        self._limit = math.inf if cpu_seconds is None else cpu_seconds
        self._state = _core.SandboxState()
        self._busy = threading.Lock()
        self.cpu_seconds = 0.0
        """CPU time of all runs so far, those before a fork included; a run that was cancelled counts nothing."""
        self.parts = 0
        """How many parts its state comes from: a part that left none does not count."""

    @property
    def state_bytes(self) -> int:
        """Bytes that the state takes."""
        return len(self._state)

    def run(self, code: str, **options: Unpack[CellOptions]) -> Execution:
        """Run the next part and wait for its outcome. Files stay from part to part, standard input does not.

        Raises:
            SandboxError: The host is broken, or the pool was closed.
            ValueError: Too much input, or files that cannot be, as in `SandboxPool.run`.
            RuntimeError: Another part is running.
        """
        with self._one_at_a_time():
            if self._remaining <= 0:
                return _out_of_time()
            return self._settle(self._run(self._request(code, options, self._state, self._remaining)))

    async def run_async(self, code: str, **options: Unpack[CellOptions]) -> Execution:
        """`run`, for coroutines. Cancelling the coroutine cancels the run, and leaves the session as it was."""
        with self._one_at_a_time():
            if self._remaining <= 0:
                return _out_of_time()
            request = self._request(code, options, self._state, self._remaining)
            return self._settle(await self._run_async(request))

    def fork(self) -> "Session":
        """Another session that continues from where this one is now, with what is left of its CPU time."""
        child = Session(self._request, self._run, self._run_async, None)
        child._limit = self._limit
        child._state = self._state
        child.cpu_seconds = self.cpu_seconds
        child.parts = self.parts
        return child

    @property
    def _remaining(self) -> float:
        return self._limit - self.cpu_seconds

    @contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        if not self._busy.acquire(blocking=False):
            raise RuntimeError("a session runs one part at a time; fork it to run another from the same state")
        try:
            yield
        finally:
            self._busy.release()

    def _settle(self, result: _Result) -> Execution:
        outcome, state = result
        self.cpu_seconds += outcome.cpu_seconds
        if state is not None:
            self._state = state
            self.parts += 1
        return outcome


def _out_of_time() -> Execution:
    return Execution(OutcomeStatus.TIMEOUT, "", "", None, None, None, 0.0, 0.0, 0)
