"""The processes of a grader: a process that exits is replaced, and many crashes in a row mean a broken host."""

import contextlib
import queue
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

from torl.base.errors import RewardError
from torl.base.runtime.processes.children import ChildExitedError, JsonChild
from torl.components.grading.verdict import Verdict, VerdictCache, pair_key

_WORKER = "torl.components.grading.worker"
_START_SECONDS = 120.0
_CRASHES_IN_A_ROW = 5
# The order of sympy's sets follows string hashes: with one seed a pair has the same verdict everywhere.
_ENVIRONMENT = {"PYTHONHASHSEED": "0"}


class GraderProcesses:
    """A pool of grader processes, one for each thread that uses it. Thread-safe.

    A separate thread replaces a process that a pair has ended, so that no pair waits for the new one to load its
    libraries. After the first such pair the pool keeps one spare process.
    """

    def __init__(self, *, exact: bool = False) -> None:
        self._exact = exact
        self._idle: queue.SimpleQueue[JsonChild] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._alive: set[JsonChild] = set()
        self._closing = threading.Event()
        self._starter = ThreadPoolExecutor(
            1, thread_name_prefix="grader-starter"
        )  # processes live as long as its thread
        self._has_spare = False
        self._cache = VerdictCache()
        self._crashes_in_a_row = 0
        self._broken: RewardError | None = None

    @property
    def closing(self) -> bool:
        """Whether `terminate` was called."""
        return self._closing.is_set()

    @property
    def idle(self) -> int:
        """The number of processes that wait for a pair."""
        return self._idle.qsize()

    def require_working(self) -> None:
        """Raise a RewardError if no more pairs can be compared."""
        if self._broken is not None:
            raise self._broken
        if self._closing.is_set():
            raise RewardError("the grader was closed")

    def start_one(self) -> None:
        """Start a process and wait until it has passed its self-test (a few seconds).

        Raises:
            RewardError: The process failed, or the grader was closed.
        """
        self.require_working()
        try:
            process = JsonChild(_WORKER, environment=_ENVIRONMENT)
        except OSError as error:
            self._broken = RewardError(f"a grader process could not be started: {error}")
            raise self._broken from error
        with self._lock:
            self._alive.add(process)
        if self._closing.is_set():
            process.kill()
        try:
            process.receive(_START_SECONDS)  # the result of its self-test
        except (ChildExitedError, TimeoutError) as error:
            process.close()
            self._broken = RewardError(f"a grader process did not start: {error}")
            raise self._broken from error
        self._idle.put(process)

    def grade(self, reference: str, answer: str, cpu_seconds: float, wall_seconds: float) -> Verdict:
        """Return the verdict on a pair from an idle process, with one retry if the process crashes or hangs.

        Verdicts are cached, timeouts too. A crash of the processes is not cached.

        Raises:
            RewardError: The processes crash repeatedly, cannot be started, or were closed.
        """
        pair = pair_key(reference, answer)
        if (known := self._cache.get(pair)) is not None:
            return known
        verdict: Verdict | None = None
        try:
            verdict = self._grade(reference, answer, cpu_seconds, wall_seconds)
        finally:
            self._cache.put(pair, verdict)
        return verdict or Verdict(correct=False, failure="error")

    def _grade(self, reference: str, answer: str, cpu_seconds: float, wall_seconds: float) -> Verdict | None:
        """Return None if two processes crashed on the pair."""
        request = {"reference": reference, "answer": answer, "cpu_seconds": cpu_seconds, "exact": self._exact}
        for _ in range(2):
            process = self._idle_process()
            try:
                reply = process.ask(request, wall_seconds)
            except (ChildExitedError, TimeoutError) as error:
                process.close()
                used_up = isinstance(error, ChildExitedError) and error.status == -signal.SIGPROF
                if not used_up:
                    self._note_crash(error)
                self._replace(process)
                if used_up:
                    return Verdict(correct=False, failure="timeout")
            else:
                self._idle.put(process)
                self._crashes_in_a_row = 0
                return Verdict(reply["correct"], "error" if "error" in reply else None)
        return None

    def terminate(self) -> None:
        """Kill all processes, from any thread; threads that wait for a reply see a crash."""
        self._closing.set()
        with self._lock:
            alive = list(self._alive)
        for process in alive:
            process.kill()

    def reap(self) -> None:
        """Reap the processes, once no other thread uses them."""
        self._starter.shutdown(wait=True, cancel_futures=True)
        for process in self._alive:
            process.close()

    def _idle_process(self) -> JsonChild:
        while True:
            self.require_working()
            with contextlib.suppress(queue.Empty):
                return self._idle.get(timeout=1.0)

    def _replace(self, process: JsonChild) -> None:
        with self._lock:
            self._alive.discard(process)
            missing = 1 if self._has_spare else 2
            self._has_spare = True
        for _ in range(missing):
            # `require_working` reports a failed start to waiting threads; a closed pool needs no new process.
            with contextlib.suppress(RuntimeError):
                self._starter.submit(self.start_one)

    def _note_crash(self, crash: Exception) -> None:
        # A pair may crash its process; many crashes in a row mean a broken host.
        with self._lock:
            self._crashes_in_a_row += 1
            if self._crashes_in_a_row >= _CRASHES_IN_A_ROW and not self._closing.is_set():
                self._broken = RewardError(
                    f"{self._crashes_in_a_row} grader processes died in a row; the last: {crash}"
                )
