"""The grader pool with real processes: bombs, crashes, kills, and a parent that dies."""

import asyncio
import contextlib
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

import torl.reward.process
from torl.errors import RewardError
from torl.reward import GraderPool, Verdict
from torl.types import FinishReason, Grade, Outcome, OutcomeStatus, Problem, Prompt, ToolCall, Trajectory

TIMEOUT_SECONDS = 1.0


@pytest.fixture(scope="module")
def grader() -> Iterator[GraderPool]:
    pool = GraderPool(workers=2, timeout_seconds=TIMEOUT_SECONDS, failed_code_penalty=-0.5)
    pool.start()
    yield pool
    pool.close()


def trajectory(answer: str, sampled_text: str, *statuses: OutcomeStatus) -> Trajectory:
    calls = tuple(
        ToolCall("1", Outcome(status, "", "", None, None, None, 0.0, 0.0, 0), "\n\n```\n", 0, 0, 0.0)
        for status in statuses
    )
    empty = np.zeros(0, np.int32)
    return Trajectory(
        prompt=Prompt(Problem("p", "?", answer), (1,)),
        group="0/p",
        sample=0,
        token_ids_T=empty,
        loss_mask_T=empty.astype(np.bool_),
        rollout_logprobs_T=empty.astype(np.float32),
        policy_versions_T=empty,
        turns=(),
        tool_calls=calls,
        finish_reason=FinishReason.STOP,
        text=sampled_text,
        sampled_text=sampled_text,
        seconds=0.0,
    )


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
    ("answer", "text", "statuses", "reward", "correct", "found"),
    [
        ("\\frac{1}{2}", r"so \boxed{0.5}", (), 1.0, True, "0.5"),
        ("204", r"so \boxed{204}", (OutcomeStatus.OK,), 1.0, True, "204"),
        ("204", r"so \boxed{205}", (OutcomeStatus.OK,), -1.0, False, "205"),
        ("204", "so 204", (), -1.0, False, None),
        ("204", r"\boxed{204}", (OutcomeStatus.ERROR, OutcomeStatus.OK), 0.5, True, "204"),
        ("204", r"\boxed{}", (OutcomeStatus.TIMEOUT,), -1.5, False, ""),
    ],
)
def test_grades(
    grader: GraderPool,
    answer: str,
    text: str,
    statuses: tuple[OutcomeStatus, ...],
    reward: float,
    correct: bool,
    found: str | None,
) -> None:
    grade = asyncio.run(grader.grade(trajectory(answer, text, *statuses)))
    assert (grade.reward, grade.correct, grade.answer, grade.failure) == (reward, correct, found, None)


def test_the_form_of_the_reference_decides(grader: GraderPool) -> None:
    """A reference that is an inequality may be answered by its interval; not the other way round."""
    inequality, interval = "1<x<2", "x\\in(1,2)"
    for reference, answer, correct in ((inequality, interval, True), (interval, inequality, False)):
        assert asyncio.run(grader.compare(reference, answer)) == Verdict(correct)
        assert asyncio.run(grader.grade(trajectory(reference, f"\\boxed{{{answer}}}"))).correct == correct


def test_a_call_without_code_is_no_failed_code(grader: GraderPool) -> None:
    """The penalty is for code that ran; a marker with no block before it ran nothing."""
    asked = trajectory("204", "\\boxed{204}")
    outcome = Outcome(OutcomeStatus.ERROR, "", "", "NoCode", "NoCode: there was none", None, 0.0, 0.0, 0)
    asked = replace(asked, tool_calls=(ToolCall("", outcome, "\n\n```\n", 0, 0, 0.0),))
    assert asyncio.run(grader.grade(asked)).reward == 1.0


@pytest.mark.parametrize(
    ("text", "finish", "reward"),
    [
        ("so</think> <answer>\\boxed{204}</answer>", FinishReason.STOP, 1.0),
        ("so</think> <answer>\\boxed{204}</answer>", FinishReason.LENGTH, 0.0),
        ("so \\boxed{204}", FinishReason.STOP, 0.0),
        ("so</think> <answer>\\boxed{205}</answer>", FinishReason.STOP, 0.0),
    ],
)
def test_a_reward_that_asks_for_the_format(text: str, finish: FinishReason, reward: float) -> None:
    async def graded() -> Grade:
        async with GraderPool(workers=1, timeout_seconds=TIMEOUT_SECONDS, wrong=0.0, require_format=True) as pool:
            return await pool.grade(replace(trajectory("204", text), finish_reason=finish))

    grade = asyncio.run(graded())
    assert (grade.reward, grade.correct) == (reward, "204" in text)  # right is right, whatever it is worth


@pytest.mark.parametrize("bomb", ["9^{9^{9^9}}", "9^{9^{9}}", "(10^8)!", "\\sum_{k=1}^{10^9} k^k", "{" * 900 + "5"])
def test_a_bomb_ends_as_a_shown_failure_and_the_pool_goes_on(grader: GraderPool, bomb: str) -> None:
    before = grader.statistics

    async def main() -> tuple[Verdict, Verdict]:
        return await grader.compare("5", bomb), await grader.compare("\\frac{1}{2}", "0.5")

    computed = cpu_seconds_of_ended_children()
    bombed, after = asyncio.run(main())
    assert not bombed.correct
    assert after == Verdict(correct=True)
    # The limit's second, and what the process needed to start and for earlier pairs; the wall-clock deadline is 11 s.
    assert cpu_seconds_of_ended_children() - computed < 10
    counted = grader.statistics
    assert counted.pairs == before.pairs + 2
    assert counted.timeouts - before.timeouts == (bombed.failure == "timeout")
    if not bomb.startswith("{"):
        assert bombed.failure == "timeout"


@pytest.mark.parametrize(
    "answer", ["x" * 100_000, "5\x00", "五", "½", "}{" * 50, "\ud800", "__import__('os')._exit(3)"]
)
def test_strange_answers_are_simply_wrong(grader: GraderPool, answer: str) -> None:
    assert asyncio.run(grader.compare("\\frac{1}{7}", answer)) == Verdict(correct=False)


def test_a_thousand_pairs_at_once_keep_their_order(grader: GraderPool) -> None:
    numbers = range(1, 1001)
    batch = [trajectory(f"\\frac{{{n}}}{{1001}}", f"\\boxed{{{n + n % 2}/1001}}") for n in numbers]
    grades = asyncio.run(grader.grade_batch(batch))
    assert [grade.correct for grade in grades] == [n % 2 == 0 for n in numbers]
    assert [grade.answer for grade in grades] == [f"{n + n % 2}/1001" for n in numbers]


def test_a_killed_process_is_replaced_and_its_pair_asked_again() -> None:
    async def main() -> None:
        async with GraderPool(1, TIMEOUT_SECONDS) as grader:
            (process,) = grader._alive
            os.kill(process.pid, signal.SIGKILL)
            assert await grader.compare("\\frac{1}{2}", "0.5") == Verdict(correct=True)
            assert {other.pid for other in grader._alive}.isdisjoint({process.pid})

    asyncio.run(main())


def test_a_cancelled_pair_does_not_disturb_the_next() -> None:
    async def main() -> None:
        async with GraderPool(1, TIMEOUT_SECONDS) as grader:
            bomb = asyncio.create_task(grader.compare("5", "9^{9^{9^9}}"))
            await asyncio.sleep(0.2)
            bomb.cancel()
            with pytest.raises(asyncio.CancelledError):
                await bomb
            assert await grader.compare("\\frac{1}{2}", "0.5") == Verdict(correct=True)

    asyncio.run(main())


def test_processes_that_die_again_and_again_stop_the_run() -> None:
    async def main() -> None:
        async with GraderPool(1, 30.0) as grader:
            stop = threading.Event()

            def assassin() -> None:
                while not stop.is_set():
                    for process in list(grader._alive):
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(process.pid, signal.SIGKILL)
                    time.sleep(0.01)

            thread = threading.Thread(target=assassin)
            thread.start()
            try:
                bombs = [grader.compare("5", "9^{9^{9^9}}") for _ in range(10)]
                with pytest.raises(RewardError, match=r"died in a row|did not start"):
                    await asyncio.gather(*bombs)
                with pytest.raises(RewardError):
                    await grader.compare("\\frac{1}{2}", "0.25")
            finally:
                stop.set()
                thread.join()

    asyncio.run(main())


def test_a_success_in_between_forgets_the_crashes() -> None:
    """A long run may meet many pairs that end their process, as long as others can be judged."""

    async def main() -> None:
        async with GraderPool(1, TIMEOUT_SECONDS) as grader:
            for _ in range(6):
                (process,) = grader._alive
                os.kill(process.pid, signal.SIGKILL)
                assert await grader.compare("\\frac{1}{2}", "0.5") == Verdict(correct=True)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("program", "words"),
    [("import sys; sys.exit('no math here')", "no math here"), ("raise SystemExit('self-test: 5')", "self-test: 5")],
)
def test_a_grader_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch, program: str, words: str) -> None:
    monkeypatch.setattr(torl.reward.process, "WORKER_COMMAND", (sys.executable, "-c", program))
    with pytest.raises(RewardError, match=words):
        GraderPool(2, TIMEOUT_SECONDS).start()


def test_no_executable_is_a_reward_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torl.reward.process, "WORKER_COMMAND", ("/nonexistent/python",))
    with pytest.raises(RewardError, match="could not be started"):
        GraderPool(1, TIMEOUT_SECONDS).start()


def test_closing_leaves_no_process_even_in_the_middle_of_a_bomb() -> None:
    async def main() -> list[int]:
        async with GraderPool(2, 60.0) as grader:
            pids = [process.pid for process in grader._alive]
            bomb = asyncio.create_task(grader.compare("5", "9^{9^{9^9}}"))
            await asyncio.sleep(0.3)
        with pytest.raises(RewardError):
            await bomb
        with pytest.raises(RewardError, match="not running"):
            await grader.compare("\\frac{1}{2}", "0.5")
        return pids

    computed = cpu_seconds_of_ended_children()
    pids = asyncio.run(main())
    assert cpu_seconds_of_ended_children() - computed < 45  # two starts; nobody waited for the bomb's 60
    assert not any(is_running(pid) for pid in pids)


async def test_a_start_that_is_cancelled_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    spawn = torl.reward.process.GraderProcess.__init__

    def recording(self: torl.reward.process.GraderProcess) -> None:
        spawn(self)
        started.append(self.pid)

    monkeypatch.setattr(torl.reward.process.GraderProcess, "__init__", recording)
    entering = asyncio.create_task(GraderPool(2, TIMEOUT_SECONDS).__aenter__())
    await asyncio.to_thread(wait_until, lambda: len(started) == 2)
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering
    assert not any(is_running(pid) for pid in started)


@pytest.mark.parametrize("busy", [False, True])
def test_graders_end_when_the_parent_is_killed(busy: bool) -> None:
    program = f"""
import asyncio
from torl.reward import GraderPool
async def main():
    async with GraderPool(2, 600.0) as grader:
        if {busy}:
            asyncio.create_task(grader.compare("5", "9^{{9^{{9^9}}}}"))
            await asyncio.sleep(0.5)
        print(*(process.pid for process in grader._alive), flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 2
        assert all(is_running(pid) for pid in pids)
        parent.kill()
    wait_until(lambda: not any(is_running(pid) for pid in pids))


def test_importing_the_pool_imports_no_mathematics() -> None:
    program = "import sys, torl.reward; print([m for m in ('sympy', 'math_verify', 'torch') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "[]"
