"""Comparing answers with their references: the face of a few grader processes.

What a model writes as its answer is untrusted: it can make the comparison run forever, or kill the process that
compares. Each pair therefore has a limit on CPU time (so that a busy machine does not change a verdict), a wall-clock
deadline behind it, and a process that is replaced afterwards. A pair that could not be decided is wrong, and says so in
`Verdict.failure`. Graders that do not work at all raise a `RewardError`.
"""

import asyncio
from collections.abc import Iterable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

from torl.errors import RewardError
from torl.rewards.pool import GraderProcesses
from torl.rewards.verdict import Verdict, compare_exactly

WALL_FACTOR = 5.0
WALL_SLACK_SECONDS = 10.0
"""A pair may take `WALL_FACTOR` times its CPU time of wall-clock time, and at least this much more."""


class Grader:
    r"""Says whether two answers are mathematically the same, whatever a model wrote as its answer.

        with torl.Grader() as grader:
            grader.grade(reference=r"\frac{1}{2}", answer="0.5")  # Verdict(correct=True, failure=None)

    Use it as `with` or `async with`, or start and close it. All methods may be called from any thread, also where an
    event loop is running (a notebook).
    """

    def __init__(self, workers: int = 2, timeout_seconds: float = 2.0) -> None:
        """Start nothing yet.

        Args:
            workers: grader processes.
            timeout_seconds: CPU time of one pair; the wall-clock deadline is five times as long, at least 10 s more.
        """
        if workers < 1 or timeout_seconds <= 0:
            raise ValueError("a grader needs at least one worker and a time-out above 0")
        self._workers = workers
        self._cpu_seconds = timeout_seconds
        self._wall_seconds = max(WALL_FACTOR * timeout_seconds, timeout_seconds + WALL_SLACK_SECONDS)
        self._executor: ThreadPoolExecutor | None = None
        self._processes = GraderProcesses()

    def start(self) -> None:
        """Start the processes and wait until each has passed its self-test (some seconds).

        Raises:
            RewardError: one of them did not.
        """
        if self._executor is not None or self._processes.closing:
            raise RewardError("this grader was already started: make another one")
        # A process dies with the thread that started it (PR_SET_PDEATHSIG), so the grader's own threads start them.
        self._executor = ThreadPoolExecutor(self._workers, thread_name_prefix="grader")
        try:
            starts = [self._executor.submit(self._processes.start_one) for _ in range(self._workers)]
            for start in starts:
                start.result()
        except RewardError:
            self.close()
            raise
        except (CancelledError, RuntimeError) as error:  # closed by another thread
            raise RewardError("the grader was closed while it started") from error

    def close(self) -> None:
        """End all processes; pairs still waiting are cancelled. May be called twice."""
        self._processes.terminate()
        if self._executor is not None:  # its threads may be waiting for the processes, and start no more of them
            self._executor.shutdown(wait=True, cancel_futures=True)
            self._processes.reap()

    def grade(self, reference: str, answer: str, *, shortcuts: bool = True) -> Verdict:
        """Compare one answer with its reference; the order matters (`torl.rewards.equivalence`).

        Args:
            reference: what is right, in LaTeX or plain notation.
            answer: what a model wrote.
            shortcuts: decide without math-verify what needs no mathematics; it says the same.

        Raises:
            RewardError: the grader is broken or not running.
        """
        self._require_running()
        verdict = compare_exactly(reference, answer) if shortcuts else None
        if verdict is not None:
            return verdict
        try:
            return self._submit(reference, answer).result()
        except CancelledError as error:
            raise RewardError("the grader was closed before it came to this pair") from error

    async def grade_async(self, reference: str, answer: str, *, shortcuts: bool = True) -> Verdict:
        """`grade`, for coroutines. A pair that is cancelled while it waits is not judged."""
        self._require_running()
        verdict = compare_exactly(reference, answer) if shortcuts else None
        if verdict is None:
            verdict = await asyncio.wrap_future(self._submit(reference, answer))
        return verdict

    async def grade_all(self, pairs: Iterable[tuple[str, str]]) -> list[Verdict]:
        """The verdicts over pairs of a reference and an answer, in their order; equal pairs are judged once."""
        given = list(pairs)
        judged = {pair: asyncio.ensure_future(self.grade_async(*pair)) for pair in dict.fromkeys(given)}
        try:
            await asyncio.gather(*judged.values())
        finally:
            for each in judged.values():
                each.cancel()
        return [judged[pair].result() for pair in given]

    def _require_running(self) -> ThreadPoolExecutor:
        if self._executor is None:
            raise RewardError("the grader is not running: use it in a with statement, or start it")
        return self._executor

    def _submit(self, reference: str, answer: str) -> Future[Verdict]:
        executor = self._require_running()
        self._processes.require_working()
        limits = (self._cpu_seconds, self._wall_seconds)
        return executor.submit(self._processes.judge, reference, answer, *limits)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        try:
            await asyncio.to_thread(self.start)
        except asyncio.CancelledError:  # the thread continues: end what it has started
            self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)
