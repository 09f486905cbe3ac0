"""The processes of a grader: each is replaced when it ends, and too many ends in a row are a broken host."""

import contextlib
import queue
import threading
from concurrent.futures import ThreadPoolExecutor

from torl.errors import RewardError
from torl.rewards.cache import VerdictCache, pair_key
from torl.rewards.process import GraderProcess, WorkerCrashError, WorkerTimeoutError
from torl.rewards.verdict import Verdict

_CRASHES_IN_A_ROW = 5


class GraderProcesses:
    """Grader processes, as many as there are threads that ask them. Safe to use from all of these threads.

    A process that a pair has ended is replaced by a thread of its own, so that neither that pair nor any other waits
    for the new one to load its mathematics. From the first such pair on one process more is kept.
    """

    def __init__(self) -> None:
        """Start nothing yet."""
        self._idle: queue.SimpleQueue[GraderProcess] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._alive: set[GraderProcess] = set()
        self._closing = threading.Event()
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="grader-starter")  # its processes live as long as it
        self._has_spare = False
        self._memory = VerdictCache()
        self._crashes_in_a_row = 0
        self._broken: RewardError | None = None

    @property
    def closing(self) -> bool:
        """Whether `terminate` was called."""
        return self._closing.is_set()

    @property
    def idle(self) -> int:
        """Processes that wait for a pair."""
        return self._idle.qsize()

    def require_working(self) -> None:
        """Raise a RewardError if no pair can be judged any more."""
        if self._broken is not None:
            raise self._broken
        if self._closing.is_set():
            raise RewardError("the grader was closed")

    def start_one(self) -> None:
        """Start a process and wait until it has passed its self-test (some seconds).

        Raises:
            RewardError: it did not, or the grader was closed meanwhile.
        """
        self.require_working()
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
        self._idle.put(process)

    def judge(self, reference: str, answer: str, cpu_seconds: float, wall_seconds: float) -> Verdict:
        """Have a pair judged by a process that is idle, and once more if that process dies or falls silent.

        One that was judged before is not judged again, also if it took all its time. That processes died says nothing
        of a pair and is not remembered.

        Raises:
            RewardError: the processes die again and again, or cannot be started, or were closed.
        """
        pair = pair_key(reference, answer)
        if (known := self._memory.get(pair)) is not None:
            return known
        verdict: Verdict | None = None
        try:
            verdict = self._judge(reference, answer, cpu_seconds, wall_seconds)
        finally:
            self._memory.put(pair, verdict)
        return verdict or Verdict(correct=False, failure="error")

    def _judge(self, reference: str, answer: str, cpu_seconds: float, wall_seconds: float) -> Verdict | None:
        """None if two processes died of it."""
        for _ in range(2):
            process = self._idle_process()
            try:
                reply = process.ask(reference, answer, cpu_seconds, wall_seconds)
            except WorkerTimeoutError:
                self._replace(process)
                return Verdict(correct=False, failure="timeout")
            except WorkerCrashError as crash:
                self._note_crash(crash)
                self._replace(process)
            else:
                self._idle.put(process)
                self._crashes_in_a_row = 0
                return Verdict(reply["correct"], "error" if "error" in reply else None)
        return None

    def terminate(self) -> None:
        """End all processes at once, from any thread; those that wait for an answer see a crash."""
        self._closing.set()
        with self._lock:
            alive = list(self._alive)
        for process in alive:
            process.terminate()

    def reap(self) -> None:
        """Clean up after the processes, when no other thread asks them any more."""
        self._starter.shutdown(wait=True, cancel_futures=True)
        for process in self._alive:
            process.kill()

    def _idle_process(self) -> GraderProcess:
        while True:
            self.require_working()
            with contextlib.suppress(queue.Empty):
                return self._idle.get(timeout=1.0)

    def _replace(self, process: GraderProcess) -> None:
        with self._lock:
            self._alive.discard(process)
            missing = 1 if self._has_spare else 2
            self._has_spare = True
        for _ in range(missing):
            # Whoever waits for it learns from `require_working` that it did not start; closed, none is needed.
            with contextlib.suppress(RuntimeError):
                self._starter.submit(self.start_one)

    def _note_crash(self, crash: WorkerCrashError) -> None:
        """A pair may crash its process; processes that crash one after the other are a broken host."""
        with self._lock:
            self._crashes_in_a_row += 1
            if self._crashes_in_a_row >= _CRASHES_IN_A_ROW and not self._closing.is_set():
                self._broken = RewardError(
                    f"{self._crashes_in_a_row} grader processes died in a row; the last: {crash}"
                )
