"""The pool of sandbox workers, for callers that block, callers that await, and batches."""

import asyncio
import logging
import math
import os
import weakref
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Unpack

import torl._core as _core
from torl.errors import SandboxError
from torl.sandbox.execution import Execution
from torl.sandbox.guest import prepare_guest, worker_command
from torl.sandbox.options import CellOptions, RunOptions, check_memory, core_arguments, run_limits, source_bytes
from torl.sandbox.session import Session
from torl.types import OutcomeStatus

logger = logging.getLogger(__name__)

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


@dataclass(frozen=True, slots=True)
class Confinement:
    """The walls around a worker process, behind WebAssembly itself. A wall that is up cannot be taken down again."""

    landlock: int | None
    """Version of Landlock in force: no files; from 4 on no TCP, from 6 on no signals to others. None: not in force."""
    seccomp: bool
    """Whether the filter of system calls is in force."""
    missing: tuple[str, ...]
    """What this system does not have, each with the reason."""


class SandboxPool:
    """Runs untrusted Python, each run from the same fresh state, in worker processes.

    A run is deterministic: equal code, seed, input and files give an equal outcome on any worker under any load, unless
    its time runs out. No run sees anything of another, of the host's files, of the network, or of the real clock. It
    has a file system of its own in memory, and starts in the directory /work of that.

    Where more runs wait than there are workers, callers take turns: `RunOptions.caller`.

    Args:
        workers: Processes; one for each core this process may use when None.
        cpu_seconds: CPU time of one run.
        wall_seconds: Deadline behind it, for a machine so busy that the CPU time is not reached.
        memory_bytes: Memory of one run, the interpreter's own 176 MiB included.
        output_bytes: Bytes that one run may write to stdout and stderr together.
        files_bytes: Bytes that all files of one run may hold together.
        result_cache_bytes: Size of the outcome cache. A run whose inputs all equal those of a pending or cached run
            returns that run's outcome, except timeouts, crashes and requests above 1 MiB. 0 disables the cache.
        reuse_guest: Keep one guest for each worker and put its memory back after every run, where the system allows it,
            instead of making a new one for each run. The results are the same; this is several times faster.
        verify_every: Runs of a worker after which all of the guest's memory is compared with the image (0: never).
            A difference is a `SandboxError`.
        cache: Directory of the prepared guest, if not the user's.

    Raises:
        SandboxError: No guest, or workers that do not start or do not run it.
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
            raise ValueError(f"workers must be at least 1, not {workers}")
        for name, value in (("cpu_seconds", cpu_seconds), ("wall_seconds", wall_seconds)):
            if not 0 < value < 1e9:
                raise ValueError(f"{name} must be a positive number of seconds, not {value}")
        check_memory(memory_bytes)
        for name, size in (("output_bytes", output_bytes), ("files_bytes", files_bytes)):
            if not 0 <= size <= 256 << 20:
                raise ValueError(f"{name} must be between 0 and 256 MiB, not {size}")
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
            _warn_once(reason)
        if missing := self.confinement().missing:
            _warn_of_missing_walls(missing)
        # Runs at garbage collection and at exit; the threads of the core must end before the interpreter does.
        self._finalizer = weakref.finalize(self, self._core.close)

    def run(self, code: str, **options: Unpack[RunOptions]) -> Execution:
        """Run `code` and wait for its outcome.

        Args:
            code: Python source. It runs as `__main__`, in a file named main.py.
            options: seed, input, files and what is asked for, as in `RunOptions`.

        Raises:
            SandboxError: The host is broken, or the pool was closed.
            TypeError: Code that is no string.
            ValueError: Input that is too large (16 MiB of code, 256 MiB of standard input, 1 GiB of all, with what a
                session has kept), or files that cannot be: paths that are not relative or lead upwards, a file in the
                place of a directory, more bytes than `files_bytes`.
        """
        return self._run(self._request(code, options))[0]

    async def run_async(self, code: str, **options: Unpack[RunOptions]) -> Execution:
        """`run`, for coroutines. Cancelling the coroutine cancels the run: queued or running, it ends at once."""
        return (await self._run_async(self._request(code, options)))[0]

    def run_batch(self, codes: Sequence[str], **options: Unpack[RunOptions]) -> list[Execution]:
        """Run every snippet, each in a state of its own, and return the outcomes in the snippets' order."""
        requests = [self._request(code, options) for code in codes]
        return [_result(one)[0] for one in self._core.run_batch(requests)]

    def as_completed(self, codes: Sequence[str], **options: Unpack[RunOptions]) -> Iterator[tuple[int, Execution]]:
        """Run every snippet, and yield its index and outcome as soon as it has one.

        Giving the iteration up cancels what is left.
        """
        ended: SimpleQueue[tuple[int, Future[Execution]]] = SimpleQueue()
        # All of them first: nothing runs if one cannot.
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
        """Queue a run. `Future.cancel` works while the future is pending, whether the run waits or is under way."""
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
        """A program whose parts run one after the other, each with the state that those before it left.

        Args:
            seed: Of everything random in all of its runs.
            cpu_seconds: CPU time of all its runs together; each has the pool's own limits besides.
            memory_bytes: Memory of each of its runs, where that is less than the pool's.
            caller: Who asks for its runs, as in `RunOptions`.
        """

        own_bytes = self._limits.memory_bytes if memory_bytes is None else memory_bytes

        def request(
            code: str, options: CellOptions, state: _core.SandboxState, remaining: float
        ) -> _core.SandboxRequest:
            own: RunOptions = {**options, "seed": seed, "memory_bytes": own_bytes, "caller": caller}
            return self._request(code, own, state, remaining)

        return Session(request, self._run, self._run_async, cpu_seconds)

    def _request(
        self, code: str, options: RunOptions, state: _core.SandboxState | None = None, cpu_seconds: float = math.inf
    ) -> _core.SandboxRequest:
        limits = run_limits(self._limits, options, cpu_seconds)
        return _core.SandboxRequest(source_bytes(code), core_arguments(**options), limits, state)

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
                if not loop.is_closed():  # a closed one waits for nothing
                    raise

        run = self._core.submit(request, deliver)
        try:
            return await future
        except asyncio.CancelledError:
            run.cancel()
            raise

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
        """Counts of runs by outcome, and of those that were `shared`, `cancelled` and `retried`; of `workers_replaced`
        and of `failed_starts` of workers; and of runs that are `queued` and `running` now.

        Raises:
            SandboxError: This process was forked from the one that made the pool. So do the other questions to a pool.
        """
        return self._core.statistics()

    def latency(self) -> list[tuple[float, int]]:
        """How long runs took from submission to outcome: (upper bound in seconds, runs), each bound twice the last."""
        return self._core.latency()

    @property
    def reuses_guest(self) -> bool:
        """Whether the workers keep a guest from run to run."""
        return self._core.fresh_guest_reason() is None

    def confinement(self) -> Confinement:
        """The walls around each worker process."""
        landlock, seccomp, missing = self._core.confinement()
        return Confinement(landlock, seccomp, tuple(missing))

    def processes(self) -> list[int]:
        """The process ids of the workers, those that start included."""
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


def _result(outcome: _core.SandboxOutcome) -> tuple[Execution, _core.SandboxState | None]:
    """What the run did, and the state of the session after it."""
    converted = Execution(
        status=OutcomeStatus(outcome.status),
        stdout=outcome.stdout,
        stderr=outcome.stderr,
        exception_type=outcome.exception_type,
        exception_line=outcome.exception_line,
        traceback=outcome.traceback,
        cpu_seconds=outcome.cpu_seconds,
        wall_seconds=outcome.wall_seconds,
        peak_memory_bytes=outcome.peak_memory_bytes,
        value=outcome.value,
        # Names are bytes to the guest; what is not UTF-8 in one is kept as `os.fsdecode` keeps it.
        files={path.decode("utf-8", "surrogateescape"): content for path, content in outcome.files},
    )
    return converted, outcome.state


@cache
def _warn_of_missing_walls(missing: tuple[str, ...]) -> None:
    logger.warning("the sandbox's workers lack a part of their second wall on this system: %s", "; ".join(missing))


@cache
def _warn_once(reason: str) -> None:
    logger.warning("the sandbox makes a new guest for every run, which is several times slower: %s", reason)


class _RunFuture(Future[Execution]):
    """A future whose cancellation reaches the run."""

    run: _core.SandboxRun | None = None

    def cancel(self) -> bool:
        cancelled = super().cancel()
        if cancelled and self.run is not None:
            self.run.cancel()
        return cancelled
