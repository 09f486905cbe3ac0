"""Grading trajectories: an asynchronous face over a few grader processes.

What a model writes as its answer is untrusted: it can make the comparison run for ever, or kill the process
that compares. Each pair therefore has a limit on CPU time (so that a busy machine does not change a reward), a
wall-clock deadline behind it, and a process that is replaced afterwards. A pair that could not be decided is
wrong, and says so in `Grade.failure`. Graders that do not work at all stop the run with a `RewardError`.
"""

import asyncio
import contextlib
import queue
import re
import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from torl.config import RewardConfig
from torl.errors import RewardError
from torl.reward.answers import find_answer, has_valid_format
from torl.reward.process import GraderProcess, WorkerCrashError, WorkerTimeoutError
from torl.types import FinishReason, Grade, Trajectory

LONGEST_ANSWER = 2000
"""Characters. Longer answers (and more than twice as long as the reference) are wrong without being compared."""

_CRASHES_IN_A_ROW = 5
_INTEGER = re.compile(r"-?[1-9][0-9]{0,29}|0")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is said of one pair. `failure` is "timeout" or "error"; the pair then counts as not correct."""

    correct: bool
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class GraderStatistics:
    """Counts since the pool was made: pairs compared, and those of them that could not be decided."""

    pairs: int = 0
    timeouts: int = 0
    errors: int = 0


class GraderPool:
    """A few grader processes behind one queue. Use it as `async with GraderPool(...) as grader`, or start and close it.

    Rewards (algorithms of the papers): `correct` or `wrong` by the final answer, plus `failed_code_penalty` (ToRL
    tried -0.5) if some of the code the trajectory ran did not end well; never for a trajectory that ran none.
    """

    def __init__(
        self,
        workers: int,
        timeout_seconds: float,
        correct: float = 1.0,
        wrong: float = -1.0,
        failed_code_penalty: float = 0.0,
        require_format: bool = False,
    ) -> None:
        """Start nothing yet.

        Args:
            workers: grader processes.
            timeout_seconds: CPU time of one pair; the wall-clock deadline is five times as long, at least 10 s more.
            correct: reward of a correct final answer.
            wrong: reward of a wrong or missing one.
            failed_code_penalty: added if the trajectory ran code and some of it failed.
            require_format: whether a correct answer has its reward only in a response that ended by itself and has a
                valid format (`torl.reward.answers.has_valid_format`).
        """
        if workers < 1 or timeout_seconds <= 0:
            raise ValueError("a grader pool needs at least one worker and a time-out above 0")
        self._workers = workers
        self._cpu_seconds = timeout_seconds
        self._wall_seconds = max(5 * timeout_seconds, timeout_seconds + 10)
        self._correct = correct
        self._wrong = wrong
        self._failed_code_penalty = failed_code_penalty
        self._require_format = require_format
        self._executor: ThreadPoolExecutor | None = None
        self._idle: queue.SimpleQueue[GraderProcess] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._alive: set[GraderProcess] = set()
        self._closing = threading.Event()
        self._statistics = GraderStatistics()
        self._crashes_in_a_row = 0
        self._broken: RewardError | None = None

    @classmethod
    def from_config(cls, config: RewardConfig) -> "GraderPool":
        """The graders of a run."""
        return cls(
            config.workers,
            config.timeout_seconds,
            correct=config.correct,
            wrong=config.wrong,
            failed_code_penalty=config.failed_code,
            require_format=config.require_format,
        )

    @property
    def statistics(self) -> GraderStatistics:
        """Counts so far; safe to read at any time."""
        with self._lock:
            return self._statistics

    def start(self) -> None:
        """Start the processes and wait until each has passed its self-test (some seconds).

        Raises:
            RewardError: one of them did not.
        """
        if self._executor is not None or self._closing.is_set():
            raise RewardError("this grader pool was already started")
        # A process dies with the thread that started it (PR_SET_PDEATHSIG), so the pool's own threads start them.
        self._executor = ThreadPoolExecutor(self._workers, thread_name_prefix="grader")
        try:
            starts = [self._executor.submit(self._start_process) for _ in range(self._workers)]
            for start in starts:
                self._idle.put(start.result())
        except RewardError:
            self.close()
            raise
        except (CancelledError, RuntimeError) as error:  # closed by another thread
            raise RewardError("the grader pool was closed while it started") from error

    def close(self) -> None:
        """End all processes; pairs still waiting are cancelled. May be called twice."""
        self._closing.set()
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            with self._lock:
                alive = list(self._alive)
            for process in alive:  # their threads may be waiting for them, and clean up after the last one
                process.terminate()
            self._executor.shutdown(wait=True)
            for process in alive:
                process.kill()

    async def __aenter__(self) -> Self:
        try:
            await asyncio.to_thread(self.start)
        except asyncio.CancelledError:  # the thread goes on: end what it has started
            self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    async def grade(self, trajectory: Trajectory) -> Grade:
        """Grade one trajectory by the last boxed answer of its sampled text.

        Raises:
            RewardError: the graders are broken; nothing can be graded any more.
        """
        answer = find_answer(trajectory.sampled_text)
        verdict = Verdict(correct=False)
        if answer is not None:
            verdict = await self.compare(trajectory.prompt.problem.answer, answer.text)
        valid = not self._require_format or (
            trajectory.finish_reason is FinishReason.STOP and has_valid_format(trajectory.sampled_text)
        )
        reward = self._correct if verdict.correct and valid else self._wrong
        if any(call.ran and not call.outcome.ok for call in trajectory.tool_calls):
            reward += self._failed_code_penalty
        return Grade(reward, verdict.correct, None if answer is None else answer.text, verdict.failure)

    async def grade_batch(self, trajectories: Sequence[Trajectory]) -> list[Grade]:
        """Grade many trajectories at once; the grades are in their order.

        Raises:
            RewardError: see `grade`.
        """
        return list(await asyncio.gather(*(self.grade(trajectory) for trajectory in trajectories)))

    async def compare(self, reference: str, answer: str, *, shortcuts: bool = True) -> Verdict:
        """Compare one answer with its reference; without `shortcuts` math-verify is asked about every pair.

        Raises:
            RewardError: see `grade`.
        """
        verdict = compare_exactly(reference, answer) if shortcuts else None
        if verdict is None:
            verdict = await asyncio.wrap_future(self._submit(reference, answer))
        return verdict

    def _submit(self, reference: str, answer: str) -> Future[Verdict]:
        if self._broken is not None:
            raise self._broken
        if self._executor is None or self._closing.is_set():
            raise RewardError("the grader pool is not running")
        return self._executor.submit(self._compare, reference, answer)

    def _compare(self, reference: str, answer: str) -> Verdict:
        """Runs in one of the pool's threads; there are as many as processes."""
        for attempt in (1, 2):
            process = self._idle_process()
            try:
                reply = process.ask(reference, answer, self._cpu_seconds, self._wall_seconds)
            except WorkerTimeoutError:
                self._replace(process)
                return self._count(Verdict(correct=False, failure="timeout"))
            except WorkerCrashError as crash:
                self._note_crash(crash)
                self._replace(process)
                if attempt == 2:
                    return self._count(Verdict(correct=False, failure="error"))
            else:
                self._idle.put(process)
                self._crashes_in_a_row = 0
                return self._count(Verdict(reply["correct"], "error" if "error" in reply else None))
        raise AssertionError("unreachable")

    def _idle_process(self) -> GraderProcess:
        while True:
            if self._broken is not None:
                raise self._broken
            if self._closing.is_set():
                raise RewardError("the grader pool was closed")
            with contextlib.suppress(queue.Empty):
                return self._idle.get(timeout=1.0)

    def _count(self, verdict: Verdict) -> Verdict:
        with self._lock:
            counts = self._statistics
            self._statistics = replace(
                counts,
                pairs=counts.pairs + 1,
                timeouts=counts.timeouts + (verdict.failure == "timeout"),
                errors=counts.errors + (verdict.failure == "error"),
            )
        return verdict

    def _start_process(self) -> GraderProcess:
        if self._broken is not None:
            raise self._broken
        if self._closing.is_set():
            raise RewardError("the grader pool was closed")
        try:
            process = GraderProcess()
            with self._lock:
                self._alive.add(process)
            if self._closing.is_set():
                process.terminate()
            process.wait_until_ready()
        except RewardError as error:
            self._broken = error
            raise
        return process

    def _replace(self, process: GraderProcess) -> None:
        with self._lock:
            self._alive.discard(process)
        self._idle.put(self._start_process())

    def _note_crash(self, crash: WorkerCrashError) -> None:
        """A pair may crash its process; processes that crash one after the other are a broken host."""
        with self._lock:
            self._crashes_in_a_row += 1
            if self._crashes_in_a_row >= _CRASHES_IN_A_ROW and not self._closing.is_set():
                self._broken = RewardError(
                    f"{self._crashes_in_a_row} grader processes died in a row; the last: {crash}"
                )


def compare_exactly(reference: str, answer: str) -> Verdict | None:
    """Decide the pairs that need no mathematics, without a process; None for all others.

    Equal text is correct, two plain integers are correct if equal, an answer of absurd length is wrong. The first
    two never contradict math-verify (`tests/property/test_reward_equivalence.py`).
    """
    reference, answer = reference.strip(), answer.strip()
    if not answer or not reference:
        return Verdict(correct=False)
    if reference == answer:
        return Verdict(correct=True)
    if len(answer) > max(LONGEST_ANSWER, 2 * len(reference)):
        return Verdict(correct=False)
    if _INTEGER.fullmatch(reference) and _INTEGER.fullmatch(answer):
        return Verdict(correct=False)  # canonical integers are equal only as equal text
    return None
