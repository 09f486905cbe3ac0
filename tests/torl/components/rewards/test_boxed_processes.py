"""The boxed reward over real grader processes."""

from collections.abc import AsyncIterator

import pytest

from builders import asked, group, trajectory
from torl.base.component import RunContext
from torl.base.errors import RewardError
from torl.base.types import Grade
from torl.components.rewards import MathOptions, MathReward


@pytest.fixture(scope="module")
async def reward() -> AsyncIterator[MathReward]:
    reward = MathReward(MathOptions(grader_timeout_seconds=1.0))
    await reward.start(RunContext())
    yield reward
    await reward.close()


async def graded(reward: MathReward, answer: str, text: str) -> Grade:
    (grade,) = await reward.grade(group(trajectory(text, answer=answer)))
    return grade


async def test_answers_are_compared_by_their_mathematics(reward: MathReward) -> None:
    grade = await graded(reward, "\\sqrt{4}", r"so \boxed{2}")
    assert (grade.reward, grade.correct, grade.answer, grade.failure) == (1.0, True, "2", None)


async def test_reference_and_answer_are_not_exchanged(reward: MathReward) -> None:
    """A tuple answers a list of two numbers, but a list without brackets does not answer a tuple."""
    numbers, pair = "1,2", "(1,2)"
    for reference, answer, correct in ((numbers, pair, True), (pair, numbers, False)):
        assert (await graded(reward, reference, f"\\boxed{{{answer}}}")).correct == correct


async def test_undecided_answer_reports_its_failure(reward: MathReward) -> None:
    grade = await graded(reward, "5", r"\boxed{9^{9^{9^9}}}")
    assert (grade.reward, grade.correct, grade.failure) == (-1.0, False, "timeout")


async def test_a_thousand_pairs_at_once_keep_their_order(reward: MathReward) -> None:
    """Two in ten need a process, whose verdicts come later than those that need none."""
    numbers = range(1, 1001)
    answers = [f"x = {n + n % 2}" if n % 10 < 2 else str(n + n % 2) for n in numbers]
    grades = await reward.grade(
        group(
            *(
                trajectory(f"\\boxed{{{answer}}}", prompt=asked(answer=str(n)), sample=n)
                for n, answer in zip(numbers, answers, strict=True)
            )
        )
    )
    assert [grade.correct for grade in grades] == [n % 2 == 0 for n in numbers]
    assert [grade.answer for grade in grades] == answers


async def test_a_reward_that_was_not_started_raises_and_may_be_closed() -> None:
    reward = MathReward()
    with pytest.raises(RewardError, match="not running"):
        await graded(reward, "\\sqrt{4}", r"\boxed{2}")
    await reward.close()
