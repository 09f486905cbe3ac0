"""Compare answers with their references, in a few grader processes.

The answer of a model is untrusted: it can make the comparison run forever, or kill the process that compares. Each pair
therefore has a CPU time limit (so that a busy machine does not change a verdict) and a longer wall-clock deadline, and
its process is replaced when a limit is reached. A pair that could not be compared counts as wrong and has a
`Verdict.failure`. A grader that does not work at all raises a `RewardError`.
"""

import asyncio
import functools
import os
from collections.abc import Iterable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

from torl.base.errors import ClusterError, RewardError
from torl.base.runtime.cluster import Cluster
from torl.base.runtime.cluster.per_node import PerNode
from torl.components.grading.pool import GraderProcesses
from torl.components.grading.verdict import Verdict, compare_exactly

WALL_FACTOR = 5.0
WALL_SLACK_SECONDS = 10.0
"""The wall-clock deadline of a pair is `WALL_FACTOR` times its CPU time limit, and at least this much longer."""


class Grader:
    r"""A grader of mathematical answers, which compares them with their references. Answers may be arbitrary text.

        with torl.Grader() as grader:
            grader.grade(reference=r"\frac{1}{2}", answer="0.5")  # Verdict(correct=True, failure=None)

    Use it with `with` or `async with`, or start and close it. All methods are thread-safe, and can be called while an
    event loop runs (in a notebook).
    """

    def __init__(self, workers: int | None = None, timeout_seconds: float = 2.0, *, exact: bool = False) -> None:
        """Configure the grader; `start` starts its processes.

        Args:
            workers: Number of grader processes. None starts one for every eight cores, and at least 2.
            timeout_seconds: CPU time limit of one pair. The wall-clock deadline is five times as long, at least 10 s
                longer.
            exact: Whether decimals are exact: 1.41421356 is not the square root of 2, nor 0.33333333 a third. By
                default, six decimals decide, and four digits of a fraction.
        """
        if workers is None:
            workers = max(2, len(os.sched_getaffinity(0)) // 8)
        if workers < 1 or timeout_seconds <= 0:
            raise ValueError("a grader needs at least one worker and a timeout above 0")
        self._workers = workers
        self._cpu_seconds = timeout_seconds
        self._wall_seconds = max(WALL_FACTOR * timeout_seconds, timeout_seconds + WALL_SLACK_SECONDS)
        self._executor: ThreadPoolExecutor | None = None
        self._exact = exact
        self._processes = GraderProcesses(exact=exact)

    def start(self) -> None:
        """Start the processes and wait until each has passed its self-test (a few seconds).

        Raises:
            RewardError: A process failed its self-test.
        """
        if self._executor is not None or self._processes.closing:
            raise RewardError("this grader was already started: make another one")
        # A process dies with the thread that started it (PR_SET_PDEATHSIG), so the grader's own threads start them.
        self._executor = ThreadPoolExecutor(self._workers, thread_name_prefix="grader")
        try:
            starts = [self._executor.submit(self._processes.start_one) for _ in range(self._workers)]
            for start in starts:
                start.result()
        except (CancelledError, RuntimeError) as error:  # closed by another thread
            raise RewardError("the grader was closed while it started") from error
        except BaseException:  # a failed start, or Ctrl-C
            self.close()
            raise

    def close(self) -> None:
        """Stop all processes and cancel waiting pairs. Can be called twice."""
        self._processes.terminate()
        if self._executor is not None:  # its threads may be waiting for the processes, and start no more of them
            self._executor.shutdown(wait=True, cancel_futures=True)
            self._processes.reap()

    def grade(self, reference: str, answer: str, *, shortcuts: bool = True) -> Verdict:
        """Compare an answer with its reference. The order matters (`torl.components.grading.equivalence`).

        Args:
            reference: Correct answer, in LaTeX or plain notation.
            answer: Answer of a model.
            shortcuts: Whether pairs that need no mathematics are compared without math-verify, with the same verdict.

        Raises:
            RewardError: The grader has failed or is not running.
        """
        self._require_running()
        verdict = compare_exactly(reference, answer, exact=self._exact) if shortcuts else None
        if verdict is not None:
            return verdict
        try:
            return self._submit(reference, answer).result()
        except CancelledError as error:
            raise RewardError("the grader was closed before this pair was compared") from error

    async def grade_async(self, reference: str, answer: str, *, shortcuts: bool = True) -> Verdict:
        """Compare an answer with its reference, in a coroutine. A pair that is cancelled while it waits is skipped."""
        self._require_running()
        verdict = compare_exactly(reference, answer, exact=self._exact) if shortcuts else None
        if verdict is None:
            verdict = await asyncio.wrap_future(self._submit(reference, answer))
        return verdict

    async def grade_all(self, pairs: Iterable[tuple[str, str]]) -> list[Verdict]:
        """Return the verdicts on pairs of a reference and an answer, in order. Equal pairs are compared once."""
        ordered = list(pairs)
        verdicts = {pair: asyncio.ensure_future(self.grade_async(*pair)) for pair in dict.fromkeys(ordered)}
        try:
            await asyncio.gather(*verdicts.values())
        finally:
            for each in verdicts.values():
                each.cancel()
        return [verdicts[pair].result() for pair in ordered]

    def _require_running(self) -> ThreadPoolExecutor:
        if self._executor is None:
            raise RewardError("the grader is not running: use it in a with statement, or start it")
        return self._executor

    def _submit(self, reference: str, answer: str) -> Future[Verdict]:
        executor = self._require_running()
        self._processes.require_working()
        limits = (self._cpu_seconds, self._wall_seconds)
        return executor.submit(self._processes.grade, reference, answer, *limits)

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


class GraderHost:
    """The grader of a node."""

    def __init__(self, workers: int | None, timeout_seconds: float, exact: bool) -> None:
        self._grader = Grader(workers, timeout_seconds, exact=exact)

    async def start(self) -> None:
        """Start its processes."""
        await self._grader.__aenter__()

    async def grade(self, reference: str, answer: str) -> Verdict:
        """Compare an answer with its reference. The controller has decided simple pairs already."""
        return await self._grader.grade_async(reference, answer, shortcuts=False)

    async def close(self) -> None:
        """Stop its processes."""
        await self._grader.__aexit__(None, None, None)


class ClusterGrader:
    """The graders of all nodes. Each pair goes to one node, which caches its verdict; simple pairs stay here."""

    def __init__(self, workers: int | None, timeout_seconds: float, *, exact: bool = False) -> None:
        """Configure the graders, with `workers` processes on each node, as for `Grader`; `start` starts them."""
        self._exact = exact
        self._hosts = PerNode(functools.partial(GraderHost, workers, timeout_seconds, exact), "the grader")

    async def start(self, cluster: Cluster) -> None:
        """Start the graders."""
        await self._hosts.start(cluster)

    async def grade_async(self, reference: str, answer: str, *, shortcuts: bool = True) -> Verdict:
        """Compare an answer with its reference, as `Grader.grade_async` does."""
        verdict = compare_exactly(reference, answer, exact=self._exact) if shortcuts else None
        if verdict is None:
            try:
                verdict = await self._hosts.call(f"{reference}\0{answer}", "grade", reference, answer)
            except ClusterError as error:
                raise RewardError(str(error)) from error
        return verdict

    async def close(self) -> None:
        """Stop all graders."""
        await self._hosts.close()
