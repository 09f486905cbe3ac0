"""The pool of sandbox workers, for callers that block, callers that await, and batches."""

import asyncio
import os
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any

from torl import _core
from torl.errors import SandboxError
from torl.sandbox.guest import prepare_guest, worker_command
from torl.types import Outcome, OutcomeStatus

_MAXIMUM_SEED = 2**64

_SELF_TESTS = (
    ("print(6 * 7)", OutcomeStatus.OK, "42\n", None),
    ("1 / 0", OutcomeStatus.ERROR, "", "ZeroDivisionError: division by zero"),
    (
        "from sympy import symbols, solve\nx = symbols('x')\nprint(solve(x**2 - 5*x + 6, x))",
        OutcomeStatus.OK,
        "[2, 3]\n",
        None,
    ),
    ("import numpy\nprint(numpy.linalg.det(numpy.eye(2)))", OutcomeStatus.OK, "1.0\n", None),
    ("open('/etc/passwd')", OutcomeStatus.ERROR, "", None),
)


class SandboxPool:
    """Runs untrusted Python, each run from the same fresh state, in worker processes.

    A run is deterministic: equal code and seed give an equal outcome on any worker under any load, unless its time
    runs out. No run sees anything of another, of the file system, of the network, or of the real clock.

    Args:
        workers: Processes; one for each core this process may use when None.
        cpu_seconds: CPU time of one run.
        wall_seconds: Deadline behind it, for a machine so busy that the CPU time is not reached.
        memory_bytes: Memory of one run, the interpreter's own (about 120 MB) included.
        output_bytes: Bytes that one run may write to stdout and stderr together.
        cache: Directory of the prepared guest, if not the user's.

    Raises:
        SandboxError: No guest, or workers that do not start or do not run it.
    """

    def __init__(
        self,
        workers: int | None = None,
        *,
        cpu_seconds: float = 10.0,
        wall_seconds: float = 60.0,
        memory_bytes: int = 512 << 20,
        output_bytes: int = 1 << 20,
        cache: Path | None = None,
    ) -> None:
        if workers is not None and workers < 1:
            raise ValueError(f"workers must be at least 1, not {workers}")
        for name, value in (("cpu_seconds", cpu_seconds), ("wall_seconds", wall_seconds)):
            if not 0 < value < 1e9:
                raise ValueError(f"{name} must be a positive number of seconds, not {value}")
        if not 0 <= memory_bytes <= 1 << 32:
            raise ValueError(f"memory_bytes must be between 0 and 4 GiB, not {memory_bytes}")
        if not 0 <= output_bytes <= 256 << 20:
            raise ValueError(f"output_bytes must be between 0 and 256 MiB, not {output_bytes}")
        self.workers = len(os.sched_getaffinity(0)) if workers is None else workers
        self._limits: dict[str, Any] = {
            "cpu_seconds": float(cpu_seconds),
            "wall_seconds": float(wall_seconds),
            "memory_bytes": memory_bytes,
            "output_bytes": output_bytes,
        }
        directory = prepare_guest(cache=cache)
        self._core = _core.SandboxWorkers(worker_command(), directory, self.workers)
        # Runs at garbage collection and at exit; the threads of the core must be gone before the interpreter is.
        self._finalizer = weakref.finalize(self, self._core.close)

    def run(self, code: str, *, seed: int = 0) -> Outcome:
        """Run `code` and wait for its outcome.

        Args:
            code: Python source. It runs as `__main__`, in a file named main.py.
            seed: Of everything random in the run: `random`, `numpy.random`, `os.urandom`.

        Raises:
            SandboxError: The host is broken, or the pool was closed.
        """
        future = self.submit(code, seed=seed)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C, say: the run has nobody left to wait for it
            raise

    async def run_async(self, code: str, *, seed: int = 0) -> Outcome:
        """`run`, for coroutines. Cancelling the coroutine cancels the run: queued or running, it ends at once."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcome] = loop.create_future()

        def settle(outcome: Outcome | None, error: Exception | None) -> None:
            if future.done():
                return
            if outcome is not None:
                future.set_result(outcome)
            elif error is not None:
                future.set_exception(error)
            else:
                future.cancel()

        def deliver(outcome: Outcome | None, error: Exception | None) -> None:
            try:
                loop.call_soon_threadsafe(settle, outcome, error)
            except RuntimeError:
                if not loop.is_closed():  # a closed one waits for nothing
                    raise

        run = self._submit(code, seed, deliver)
        try:
            return await future
        except asyncio.CancelledError:
            run.cancel()
            raise

    def run_batch(self, codes: Sequence[str], *, seed: int = 0) -> list[Outcome]:
        """Run every snippet, each in a state of its own, and return the outcomes in the snippets' order."""
        futures = [self.submit(code, seed=seed) for code in codes]
        return [future.result() for future in futures]

    def submit(self, code: str, *, seed: int = 0) -> "Future[Outcome]":
        """Queue a run. `Future.cancel` works while the future is pending, whether the run waits or is under way."""
        future: _RunFuture = _RunFuture()

        def deliver(outcome: Outcome | None, error: Exception | None) -> None:
            if not future.set_running_or_notify_cancel():
                return
            if outcome is not None:
                future.set_result(outcome)
            else:
                future.set_exception(error or SandboxError("the run was cancelled"))

        future.run = self._submit(code, seed, deliver)
        return future

    def _submit(
        self, code: str, seed: int, deliver: Callable[[Outcome | None, Exception | None], None]
    ) -> _core.SandboxRun:
        def convert(fields: tuple[Any, ...] | None, error: Exception | None) -> None:
            deliver(None if fields is None else Outcome(OutcomeStatus(fields[0]), *fields[1:]), error)

        # Lone surrogates are no source text: the guest answers them with a SyntaxError, as for any invalid UTF-8.
        source = code.encode("utf-8", "surrogatepass")
        return self._core.submit(source, seed=seed % _MAXIMUM_SEED, callback=convert, **self._limits)

    def self_test(self) -> None:
        """Run a few programs with known results.

        Raises:
            SandboxError: One of them ended otherwise.
        """
        for code, status, stdout, line in _SELF_TESTS:
            outcome = self.run(code)
            if outcome.status is not status or outcome.stdout != stdout or line not in (None, outcome.exception_line):
                raise SandboxError(f"the sandbox failed its self-test: {code!r} ended in {outcome}")

    def stats(self) -> dict[str, int]:
        """Runs by outcome, `cancelled`, `retried`, `workers_replaced`; and how many are `queued` and `running` now."""
        return self._core.statistics()

    def processes(self) -> list[int]:
        """The process ids of the workers that are alive."""
        return self._core.processes()

    def close(self) -> None:
        """End the workers. Runs that are queued or running raise `SandboxError`; so does every later one."""
        self._finalizer()

    def __enter__(self) -> "SandboxPool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class _RunFuture(Future[Outcome]):
    """A future whose cancellation reaches the run."""

    run: _core.SandboxRun | None = None

    def cancel(self) -> bool:
        cancelled = super().cancel()
        if cancelled and self.run is not None:
            self.run.cancel()
        return cancelled
