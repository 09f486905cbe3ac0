"""The grader with real processes: bombs, crashes, kills, stops, and a parent that dies."""

import asyncio
import contextlib
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import torl.components.grading.grader
import torl.components.grading.pool
from torl.base.errors import RewardError
from torl.base.runtime.processes.children import JsonChild
from torl.components.grading import Grader, Verdict
from torl.components.grading.pool import GraderProcesses

TIMEOUT_SECONDS = 1.0


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader(workers=2, timeout_seconds=TIMEOUT_SECONDS) as grader:
        yield grader


def graders_of(parent: int) -> set[int]:
    """The grader processes that this process has started and that still run."""
    processes = set()
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (directory / "cmdline").read_bytes()
            status = (directory / "stat").read_text().rsplit(")", 1)[1].split()
            if b"torl.components.grading.worker" in command and int(status[1]) == parent and status[0] != "Z":
                processes.add(int(directory.name))
    return processes


@contextlib.asynccontextmanager
async def grading(workers: int, timeout_seconds: float) -> AsyncIterator[tuple[Grader, Callable[[], set[int]]]]:
    """A grader, and its processes now, those that start included."""
    async with Grader(workers, timeout_seconds) as grader:
        yield grader, lambda: {process.pid for process in grader._processes._alive.copy()}


def is_running(pid: int) -> bool:
    """Whether the process exists and is not merely waiting to be reaped."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        return False


def cpu_seconds_of_ended_children() -> float:
    """However busy the machine is, a process that was stopped at its limit has not computed for longer."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def wait_until(condition: object, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "the condition was never met"
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("reference", "answer", "correct"),
    [
        ("\\sqrt{4}", "2", True),
        ("\\sqrt{4}", "3", False),
        ("\\frac{1}{2}", "0.5", True),
        ("204", "204", True),
        ("204", "205", False),
        ("1<x<2", "x\\in(1,2)", True),
        ("x\\in(1,2)", "1<x<2", True),
        ("\\ge 5", "5", False),
        ("5", "\\ge 5", False),
        # The order of the two matters: 0.5 answers "how many percent", but a half is not half a percent.
        ("0.5\\%", "0.5", True),
        ("0.5", "0.5\\%", False),
    ],
)
async def test_one_pair_compared_by_waiting_and_by_awaiting(
    grader: Grader, reference: str, answer: str, correct: bool
) -> None:
    """Here an event loop is running, as in a notebook."""
    assert grader.grade(reference, answer) == Verdict(correct)
    assert await grader.grade_async(reference, answer) == Verdict(correct)


@pytest.mark.parametrize("bomb", ["9^{9^{9^9}}", "9^{9^{9}}", "(10^8)!", "\\sum_{k=1}^{10^9} k^k", "{" * 900 + "5"])
def test_a_bomb_ends_as_a_shown_failure_and_the_grader_continues(grader: Grader, bomb: str) -> None:
    bombed, after = grader.grade("5", bomb), grader.grade("\\sqrt{4}", "2")
    assert not bombed.correct
    assert after == Verdict(correct=True)
    if not bomb.startswith("{"):
        assert bombed.failure == "timeout"


@pytest.mark.parametrize(
    "answer",
    ["x" * 100_000, "5\x00", "五", "½", "}{" * 50, "\ud800", "__import__('os')._exit(3)", "0 \\le i \\le n", "(0, i)"],
)
def test_strange_answers_are_simply_wrong(grader: Grader, answer: str) -> None:
    assert grader.grade("\\frac{1}{7}", answer) == Verdict(correct=False)


async def test_hostile_pair_costs_one_process_and_delays_no_other_pair(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ten equal answers of a group: one process is spent, not ten; the others are judged while none can be started."""
    async with grading(2, TIMEOUT_SECONDS) as (grader, processes):
        before, may_start, start = processes(), threading.Event(), GraderProcesses.start_one
        monkeypatch.setattr(GraderProcesses, "start_one", lambda self: (may_start.wait(), start(self)))
        verdicts = await asyncio.gather(*(grader.grade_async("1", "10^{10^{10}}") for _ in range(10)))
        assert verdicts == [Verdict(correct=False, failure="timeout")] * 10
        assert await grader.grade_async("\\sqrt{4}", "2") == Verdict(correct=True)
        assert len(before - processes()) == 1
        may_start.set()
        await asyncio.to_thread(wait_until, lambda: grader._processes.idle == 3)  # one to spare from now on


async def test_killed_process_is_replaced_and_its_pair_retried() -> None:
    async with grading(1, TIMEOUT_SECONDS) as (grader, processes):
        (process,) = processes()
        os.kill(process, signal.SIGKILL)
        assert await grader.grade_async("\\sqrt{4}", "2") == Verdict(correct=True)
        assert process not in processes()


async def test_pair_is_graded_again_when_its_process_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that gets no CPU time from the machine proves nothing about the pair."""
    monkeypatch.setattr(torl.components.grading.grader, "WALL_SLACK_SECONDS", 2.0)
    async with grading(2, TIMEOUT_SECONDS) as (grader, processes):
        stopped = processes()
        for process in stopped:
            os.kill(process, signal.SIGSTOP)
        pairs = [("\\sqrt{4}", "2"), ("\\sqrt{4}", "3")]
        verdicts = await asyncio.gather(*(grader.grade_async(*pair) for pair in pairs))
        assert verdicts == [Verdict(correct=True), Verdict(correct=False)]
        assert processes().isdisjoint(stopped)


def test_only_the_limit_on_cpu_time_makes_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torl.components.grading.grader, "WALL_FACTOR", 0.05)
    monkeypatch.setattr(torl.components.grading.grader, "WALL_SLACK_SECONDS", -28.5)
    with Grader(1, timeout_seconds=30.0) as grader:  # a pair has 1.5 s by the clock
        assert grader.grade("5", "9^{9^{9^9}}") == Verdict(correct=False, failure="error")


async def test_a_cancelled_pair_does_not_disturb_the_next() -> None:
    async with Grader(1, TIMEOUT_SECONDS) as grader:
        bomb = asyncio.create_task(grader.grade_async("5", "9^{9^{9^9}}"))
        await asyncio.sleep(0.2)
        bomb.cancel()
        with pytest.raises(asyncio.CancelledError):
            await bomb
        assert await grader.grade_async("\\sqrt{4}", "2") == Verdict(correct=True)


async def test_processes_that_die_again_and_again_stop_the_run() -> None:
    async with grading(1, 30.0) as (grader, processes):
        stop = threading.Event()

        def assassin() -> None:
            while not stop.is_set():
                for process in processes():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process, signal.SIGKILL)
                time.sleep(0.01)

        thread = threading.Thread(target=assassin)
        thread.start()
        try:
            bombs = [grader.grade_async("5", "9^{9^{9^9}}") for _ in range(10)]
            with pytest.raises(RewardError, match=r"died in a row|did not start"):
                await asyncio.gather(*bombs)
            with pytest.raises(RewardError, match=r"died in a row|did not start"):
                grader.grade("\\sqrt{4}", "3")
        finally:
            stop.set()
            thread.join()


async def test_a_success_in_between_forgets_the_crashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long run may meet many pairs that end their process, as long as others can be judged."""
    monkeypatch.setattr(torl.components.grading.pool, "_CRASHES_IN_A_ROW", 2)
    async with grading(1, TIMEOUT_SECONDS) as (grader, processes):
        for killed in range(3):
            os.kill(min(processes()), signal.SIGKILL)
            for power in range(2):  # there are at most two, which take turns: the killed one is asked too
                number = 3 * killed + power
                assert await grader.grade_async(f"\\sqrt{{{4**number}}}", str(2**number)) == Verdict(correct=True)
            await asyncio.to_thread(wait_until, lambda: grader._processes.idle == 2)


@pytest.mark.parametrize(
    ("program", "words"),
    [("import sys; sys.exit('no math here')", "no math here"), ("raise SystemExit('self-test: 5')", "self-test: 5")],
)
def test_a_grader_that_cannot_start_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str, words: str
) -> None:
    monkeypatch.setattr(torl.components.grading.pool, "_WORKER", "no_mathematics")
    monkeypatch.setattr(torl.components.grading.pool, "_ENVIRONMENT", {"PYTHONPATH": str(tmp_path)})
    (tmp_path / "no_mathematics.py").write_text(program)
    with pytest.raises(RewardError, match=words):
        Grader(2, TIMEOUT_SECONDS).start()


def test_no_executable_is_a_reward_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with pytest.raises(RewardError, match="could not be started"):
        Grader(1, TIMEOUT_SECONDS).start()


async def test_closing_leaves_no_process_even_in_the_middle_of_a_bomb() -> None:
    computed = cpu_seconds_of_ended_children()
    async with grading(2, 600.0) as (grader, processes):
        closed = processes()
        assert closed == graders_of(os.getpid()) & closed
        assert len(closed) == 2
        bomb = asyncio.create_task(grader.grade_async("5", "9^{9^{9^9}}"))
        await asyncio.sleep(0.3)
    with pytest.raises(RewardError):
        await bomb
    for _ in range(2):
        with pytest.raises(RewardError, match="closed"):
            grader.grade("\\sqrt{4}", "2")
        grader.close()
    assert cpu_seconds_of_ended_children() - computed < 300  # two starts; no call waited for the bomb's 600
    assert not any(is_running(process) for process in closed)


def test_a_pair_that_waits_when_the_grader_closes_raises() -> None:
    with Grader(1, 60.0) as grader, ThreadPoolExecutor(2) as threads:
        pairs = [threads.submit(grader.grade, "5", bomb) for bomb in ("9^{9^{9^9}}", "8^{9^{9^9}}")]
        time.sleep(0.3)
        grader.close()
        for pair in pairs:
            with pytest.raises(RewardError):
                pair.result()


def test_unstarted_grader_raises_and_starts_only_once() -> None:
    grader = Grader(1)
    with pytest.raises(RewardError, match="start it"):
        grader.grade("\\sqrt{4}", "2")
    with grader, pytest.raises(RewardError, match="already started"):
        grader.start()
    with pytest.raises(RewardError, match="already started"):
        grader.start()


@pytest.mark.parametrize(("cores", "workers"), [(1, 2), (23, 2), (64, 8)])
def test_unset_number_of_processes_is_that_of_every_eighth_core(
    cores: int, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    assert Grader(None)._workers == workers


@pytest.mark.parametrize(("workers", "seconds"), [(0, 1.0), (1, 0.0)])
def test_a_grader_needs_a_process_and_some_time(workers: int, seconds: float) -> None:
    with pytest.raises(ValueError, match="at least one worker and a timeout above 0"):
        Grader(workers, seconds)


async def test_a_start_that_is_cancelled_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []

    class RecordedChild(JsonChild):
        def __init__(self, module: str, *, environment: Mapping[str, str]) -> None:
            super().__init__(module, environment=environment)
            started.append(self.pid)

    monkeypatch.setattr(torl.components.grading.pool, "JsonChild", RecordedChild)
    entering = asyncio.create_task(Grader(2, TIMEOUT_SECONDS).__aenter__())
    await asyncio.to_thread(wait_until, lambda: len(started) == 2)
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering
    assert not any(is_running(pid) for pid in started)


@pytest.mark.parametrize("busy", [False, True])
def test_graders_end_when_the_parent_is_killed(busy: bool) -> None:
    program = f"""
import asyncio
from torl.components.grading import Grader
async def main():
    async with Grader(2, 600.0) as grader:
        if {busy}:
            asyncio.create_task(grader.grade_async("5", "9^{{9^{{9^9}}}}"))
            await asyncio.sleep(0.5)
        print("ready", flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ready\n"
        processes = graders_of(parent.pid)
        assert len(processes) == 2
        parent.kill()
    wait_until(lambda: not any(is_running(process) for process in processes))


@pytest.mark.parametrize(
    "module", ["torl.components.rewards", "torl.commands.grader", "torl.components.grading.worker"]
)
def test_importing_a_grader_imports_no_mathematics(module: str) -> None:
    """Also in the worker: it sets its memory limit before it loads any."""
    program = f"import sys, {module}; print([m for m in ('sympy', 'math_verify', 'torch') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "[]"


def test_exact_grader_accepts_no_decimal_of_an_irrational_number() -> None:
    """In its processes, and for pairs that need none."""
    pairs = [("\\sqrt2", "1.41421356"), ("\\frac13", "0.33333333")]
    with Grader(1, TIMEOUT_SECONDS, exact=True) as grader:
        assert [grader.grade(*pair).correct for pair in pairs] == [False, False]
        assert grader.grade("\\frac12", "0.5").correct
        assert grader.grade("(\\frac12, \\sqrt{12})", "(0.5, 2*sqrt(3))").correct
