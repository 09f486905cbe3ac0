"""The pool of sandbox workers, with blocking, asynchronous and batch methods."""

import asyncio
import math
import os
import weakref
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Unpack

import torl_sandbox._core as _core
from torl_sandbox.errors import OutcomeStatus, SandboxError
from torl_sandbox.execution import Execution
from torl_sandbox.guest import (
    Confinement,
    prepare_guest,
    warn_of_fresh_guests,
    warn_of_missing_layers,
    worker_command,
)
from torl_sandbox.options import CellOptions, RunOptions, check_memory, core_arguments, run_limits, source_bytes
from torl_sandbox.session import Session

_DEFAULT = _core.SandboxLimits()

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
    """A pool of worker processes that run untrusted Python, each run from the same fresh state.

    A run is deterministic: equal code, seed, input and files have an equal outcome on any worker under any load, except
    timeouts. A run has no access to other runs, the host's files, the network or the real clock. It has a file system
    in memory and starts in its directory /work.

    If runs are queued, callers take turns (see `RunOptions.caller`).

    Args:
        workers: Number of processes. The default is one for each core that this process may use.
        cpu_seconds: CPU time of a run.
        wall_seconds: Wall-clock limit of a run, which ends it on a machine too busy to give it its CPU time.
        memory_bytes: Memory of a run, including the interpreter's own 177 MiB.
        output_bytes: Maximum output of a run to stdout and stderr together.
        files_bytes: Maximum total size of a run's files.
        result_cache_bytes: Size of the outcome cache. A run whose inputs all equal those of a pending or cached run
            returns that run's outcome, except timeouts, crashes and requests above 1 MiB. 0 disables the cache.
        reuse_guest: Whether to keep a guest per worker and restore its memory after every run, if the system allows
            it, instead of creating a guest for each run. The outcomes are equal; reuse is several times faster.
        verify_every: Number of runs of a worker after which the guest's memory is compared with the image. A difference
            is a `SandboxError`. 0 disables the comparison.
        cache: Directory of the prepared guest, if not the user's.

    Raises:
        SandboxError: The guest is missing, or the workers do not start.
    """

    def __init__(
        self,
        workers: int | None = None,
        *,
        cpu_seconds: float = _DEFAULT.cpu_seconds,
        wall_seconds: float = _DEFAULT.wall_seconds,
        memory_bytes: int = _DEFAULT.memory_bytes,
        output_bytes: int = _DEFAULT.output_bytes,
        files_bytes: int = _DEFAULT.files_bytes,
        result_cache_bytes: int = 64 << 20,
        reuse_guest: bool = True,
        verify_every: int = 20_000,
        cache: Path | None = None,
    ) -> None:
        if workers is not None and workers < 1:
            raise ValueError(f"workers must be at least 1, got {workers}")
        for name, value in (("cpu_seconds", cpu_seconds), ("wall_seconds", wall_seconds)):
            if not 0 < value < 1e9:
                raise ValueError(f"{name} must be a positive number of seconds, got {value}")
        check_memory(memory_bytes)
        for name, size in (("output_bytes", output_bytes), ("files_bytes", files_bytes)):
            if not 0 <= size <= 256 << 20:
                raise ValueError(f"{name} must be between 0 and 256 MiB, got {size}")
        if result_cache_bytes < 0 or verify_every < 0:
            raise ValueError("result_cache_bytes and verify_every must not be negative")
        self.workers = len(os.sched_getaffinity(0)) if workers is None else workers
        self._limits = _core.SandboxLimits(
            cpu_seconds=cpu_seconds,
            wall_seconds=wall_seconds,
            memory_bytes=memory_bytes,
            output_bytes=output_bytes,
            files_bytes=files_bytes,
        )
        directory = prepare_guest(cache=cache)
        self._core = _core.SandboxWorkers(
            worker_command(), directory, self.workers, reuse_guest, verify_every, result_cache_bytes
        )
        reason = self._core.fresh_guest_reason()
        if reuse_guest and reason is not None:
            warn_of_fresh_guests(reason)
        if missing := self.confinement().missing:
            warn_of_missing_layers(missing)
        # Runs at garbage collection and at exit. The threads of the core must end before the interpreter exits.
        self._finalizer = weakref.finalize(self, self._core.close)

    def run(self, code: str, **options: Unpack[RunOptions]) -> Execution:
        """Run `code` and wait for its outcome.

        Args:
            code: Python source. It runs as `__main__`, in a file named main.py.
            options: Seed, input, files and requested results, as in `RunOptions`.

        Raises:
            SandboxError: The host failed, or the pool was closed.
            TypeError: `code` is not a string.
            ValueError: The input is too large (16 MiB of code, 256 MiB of standard input, 1 GiB in all, including the
                state of a session), or a file is invalid: its path is not relative or leads upwards, it has the path
                of a directory, or the files exceed `files_bytes`.
        """
        return self._run(self._request(code, options))[0]

    async def run_async(self, code: str, **options: Unpack[RunOptions]) -> Execution:
        """Run `code` as a coroutine. Cancelling it cancels the run immediately, queued or running."""
        return (await self._run_async(self._request(code, options)))[0]

    def run_batch(self, codes: Sequence[str], **options: Unpack[RunOptions]) -> list[Execution]:
        """Run all snippets, each from a fresh state, and return the outcomes in the snippets' order."""
        requests = [self._request(code, options) for code in codes]
        return [_result(one)[0] for one in self._core.run_batch(requests)]

    def as_completed(self, codes: Sequence[str], **options: Unpack[RunOptions]) -> Iterator[tuple[int, Execution]]:
        """Run all snippets and yield the index and the outcome of each when it ends.

        Closing the iterator cancels the remaining runs.
        """
        ended: SimpleQueue[tuple[int, Future[Execution]]] = SimpleQueue()
        # Build all requests first: no snippet runs if one is invalid.
        requests = [self._request(code, options) for code in codes]
        futures = [self._submit(request) for request in requests]
        try:
            for index, future in enumerate(futures):
                future.add_done_callback(lambda done, index=index: ended.put((index, done)))  # type: ignore[misc]
            for _ in futures:
                index, done = ended.get()
                yield index, done.result()
        finally:
            for future in futures:
                future.cancel()

    def submit(self, code: str, **options: Unpack[RunOptions]) -> "Future[Execution]":
        """Queue a run. `Future.cancel` cancels it, queued or running."""
        return self._submit(self._request(code, options))

    def _submit(self, request: _core.SandboxRequest) -> "Future[Execution]":
        future: _RunFuture = _RunFuture()

        def deliver(outcome: _core.SandboxOutcome | None, error: Exception | None) -> None:
            if not future.set_running_or_notify_cancel():
                return
            if outcome is not None:
                future.set_result(_result(outcome)[0])
            else:
                future.set_exception(error or SandboxError("the run was cancelled"))

        future.run = self._core.submit(request, deliver)
        return future

    def session(
        self,
        *,
        seed: int = 0,
        cpu_seconds: float | None = None,
        memory_bytes: int | None = None,
        caller: Hashable = None,
    ) -> Session:
        """Return a session: a program whose parts run one after the other and share their state.

        Args:
            seed: Random seed of all runs.
            cpu_seconds: CPU time of all runs together, in addition to the pool's limits on each run.
            memory_bytes: Memory of each run, if less than the pool's.
            caller: Caller of the runs, as in `RunOptions`.
        """
        run_bytes = self._limits.memory_bytes if memory_bytes is None else memory_bytes

        def request(
            code: str, options: CellOptions, state: _core.SandboxState, remaining: float
        ) -> _core.SandboxRequest:
            run_options: RunOptions = {**options, "seed": seed, "memory_bytes": run_bytes, "caller": caller}
            return self._request(code, run_options, state, remaining)

        return Session(request, self._run, self._run_async, cpu_seconds)

    def _request(
        self, code: str, options: RunOptions, state: _core.SandboxState | None = None, cpu_seconds: float = math.inf
    ) -> _core.SandboxRequest:
        limits = run_limits(self._limits, options, cpu_seconds)
        return _core.SandboxRequest(source_bytes(code), core_arguments(options), limits, state)

    def _run(self, request: _core.SandboxRequest) -> tuple[Execution, _core.SandboxState | None]:
        return _result(self._core.run(request))

    async def _run_async(self, request: _core.SandboxRequest) -> tuple[Execution, _core.SandboxState | None]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[tuple[Execution, _core.SandboxState | None]] = loop.create_future()

        def settle(outcome: _core.SandboxOutcome | None, error: Exception | None) -> None:
            if future.done():
                return
            if outcome is not None:
                future.set_result(_result(outcome))
            elif error is not None:
                future.set_exception(error)
            else:
                future.cancel()

        def deliver(outcome: _core.SandboxOutcome | None, error: Exception | None) -> None:
            try:
                loop.call_soon_threadsafe(settle, outcome, error)
            except RuntimeError:
                if not loop.is_closed():  # no future waits in a closed loop
                    raise

        run = self._core.submit(request, deliver)
        try:
            return await future
        except asyncio.CancelledError:
            run.cancel()
            raise

    def self_test(self) -> None:
        """Run a few programs with known outcomes.

        Raises:
            SandboxError: An outcome is wrong.
        """
        for code, status, stdout, line in _SELF_TESTS:
            outcome = self.run(code)
            if outcome.status is not status or outcome.stdout != stdout or line not in (None, outcome.exception_line):
                raise SandboxError(f"the sandbox failed its self-test: {code!r} ended with {outcome}")

    def stats(self) -> dict[str, int]:
        """Return counts of runs by outcome, of `shared`, `cancelled` and `retried` runs, of `workers_replaced` and
        `failed_starts` of workers, and of runs that are `queued` and `running` now.

        Raises:
            SandboxError: This process is a fork of the pool's process. The other methods raise it as well.
        """
        return self._core.statistics()

    def latency(self) -> list[tuple[float, int]]:
        """Return a histogram of run latencies: (upper bound in seconds, runs), with bounds that double."""
        return self._core.latency()

    @property
    def reuses_guest(self) -> bool:
        """Whether the workers keep a guest between runs."""
        return self._core.fresh_guest_reason() is None

    def confinement(self) -> Confinement:
        """Return the isolation layers around each worker process."""
        landlock, seccomp, missing = self._core.confinement()
        return Confinement(landlock, seccomp, tuple(missing))

    def processes(self) -> list[int]:
        """Return the process ids of the workers, including starting ones."""
        return self._core.processes()

    def close(self) -> None:
        """Stop the workers. Queued, running and later runs raise `SandboxError`."""
        self._finalizer()

    def __enter__(self) -> "SandboxPool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _result(outcome: _core.SandboxOutcome) -> tuple[Execution, _core.SandboxState | None]:
    return Execution.from_core(outcome), outcome.state


class _RunFuture(Future[Execution]):
    """A future whose cancellation cancels the run."""

    run: _core.SandboxRun | None = None

    def cancel(self) -> bool:
        cancelled = super().cancel()
        if cancelled and self.run is not None:
            self.run.cancel()
        return cancelled
