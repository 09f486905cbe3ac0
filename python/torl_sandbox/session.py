"""Sessions: programs whose parts share their state."""

import math
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Unpack

import torl_sandbox._core as _core
from torl_sandbox.errors import OutcomeStatus
from torl_sandbox.execution import Execution
from torl_sandbox.options import CellOptions

_Result = tuple[Execution, _core.SandboxState | None]
_Request = Callable[[str, CellOptions, _core.SandboxState, float], _core.SandboxRequest]
_Run = Callable[[_core.SandboxRequest], _Result]
_RunAsync = Callable[[_core.SandboxRequest], Awaitable[_Result]]


class Session:
    """A program whose parts run one after the other and share their state. Created by `SandboxPool.session`.

    The state between two runs is a value: the difference to the memory of a fresh interpreter. Any worker continues
    from it, so a lost worker loses no state, and a fork costs nothing. A run that ends in an exception or a timeout
    keeps its effects. A run that has to be killed (it ignores the timeout for 0.1 s, exceeds the output limit, or
    crashes) keeps the effects of its complete statements.

    One part runs at a time. To run two from the same state, fork the session.
    """

    def __init__(self, request: _Request, run: _Run, run_async: _RunAsync, cpu_seconds: float | None) -> None:
        if cpu_seconds is not None and not cpu_seconds > 0:
            raise ValueError(f"cpu_seconds must be a positive number of seconds, got {cpu_seconds}")
        self._request = request
        self._run = run
        self._run_async = run_async
        self._limit = math.inf if cpu_seconds is None else cpu_seconds
        self._state = _core.SandboxState()
        self._busy = threading.Lock()
        self.cpu_seconds = 0.0
        """CPU time of all runs so far, including runs before a fork. Cancelled runs do not count."""
        self.parts = 0
        """Number of parts that the state results from."""

    @property
    def state_bytes(self) -> int:
        """Size of the state."""
        return len(self._state)

    def run(self, code: str, **options: Unpack[CellOptions]) -> Execution:
        """Run the next part and wait for its outcome. Files persist between parts, standard input does not.

        Raises:
            SandboxError: The host failed, or the pool was closed.
            ValueError: The input is too large or a file is invalid, as in `SandboxPool.run`.
            RuntimeError: Another part is running.
        """
        with self._exclusive():
            if self._remaining <= 0:
                return _timeout()
            return self._record(self._run(self._request(code, options, self._state, self._remaining)))

    async def run_async(self, code: str, **options: Unpack[CellOptions]) -> Execution:
        """Run the next part as a coroutine. Cancelling it cancels the run and does not change the session."""
        with self._exclusive():
            if self._remaining <= 0:
                return _timeout()
            request = self._request(code, options, self._state, self._remaining)
            return self._record(await self._run_async(request))

    def fork(self) -> "Session":
        """Return a new session that continues from the current state, with the remaining CPU time."""
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
    def _exclusive(self) -> Iterator[None]:
        if not self._busy.acquire(blocking=False):
            raise RuntimeError("a session runs one part at a time; fork it to run another from the same state")
        try:
            yield
        finally:
            self._busy.release()

    def _record(self, result: _Result) -> Execution:
        outcome, state = result
        self.cpu_seconds += outcome.cpu_seconds
        if state is not None:
            self._state = state
            self.parts += 1
        return outcome


def _timeout() -> Execution:
    return Execution(OutcomeStatus.TIMEOUT, "", "", None, None, None, 0.0, 0.0, 0)
