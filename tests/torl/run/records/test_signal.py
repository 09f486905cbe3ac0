"""The verdict on what groups offer to learn from, on tasks whose difficulty and reward are known."""

from random import Random

import numpy as np
import pytest

from builders import call, failed, scored, scored_group, trajectory, turn
from torl.base.types import FinishReason, ScoredGroup, ScoredTrajectory
from torl.run.records.signal import LearningSignal

CODE = "```python\nprint(1)\n```"


def response(
    correct: bool, reward: float, *, code: bool = True, fails: bool = False, cut: bool = False
) -> ScoredTrajectory:
    played = trajectory(
        turn(CODE if code else "I guess."),
        calls=[call(outcome=failed() if fails else None)] if code else [],
        finish=FinishReason.LENGTH if cut else FinishReason.STOP,
    )
    return scored(played, correct, reward)


def groups(make: object, count: int = 64, samples: int = 8, seed: int = 0) -> list[ScoredGroup]:
    random = Random(seed)
    assert callable(make)
    return [scored_group(*(make(random) for _ in range(samples))) for _ in range(count)]


def with_accuracy(accuracy: float) -> list[ScoredGroup]:
    def make(random: Random) -> ScoredTrajectory:
        correct = random.random() < accuracy
        return response(correct, 1.0 if correct else -1.0)

    return groups(make)


def test_a_task_that_is_solved_sometimes_has_a_signal_and_no_finding() -> None:
    signal = LearningSignal.measure(with_accuracy(0.3))
    assert signal.findings() == []
    assert signal.groups == 64
    assert signal.mixed == signal.differing > 50  # 1 - .3**8 - .7**8 = .94 of them are expected
    assert signal.answer_correlation == pytest.approx(1.0)
    assert signal.lines()[0].startswith(f"accuracy {signal.accuracy:.3f}, code 1.00, pass 1.00, cut 0.00; ")


@pytest.mark.parametrize(
    ("accuracy", "reason"), [(0.0, "no answer is correct: use easier problems"), (1.0, "use harder problems")]
)
def test_a_task_that_is_never_or_always_solved_has_none(accuracy: float, reason: str) -> None:
    signal = LearningSignal.measure(with_accuracy(accuracy))
    (finding,) = signal.findings()
    assert signal.is_empty
    assert finding.startswith("nothing to learn from: no group has two different rewards; ")
    assert reason in finding


def test_estimator_of_equal_rewards_has_no_obstacle() -> None:
    signal = LearningSignal.measure(with_accuracy(0.0), "none")
    assert not signal.is_empty
    assert signal.mixed == 0
    assert signal.findings() == []


def test_estimator_that_compares_the_batch_learns_from_groups_of_one() -> None:
    played = [scored_group(response(correct, float(correct))) for correct in (True, False)]
    assert LearningSignal.measure(played, "batch").findings() == []
    assert "a group has one response" in LearningSignal.measure(played).findings()[0]
    (finding,) = LearningSignal.measure(played[1:] * 8, "batch").findings()
    assert finding.startswith("nothing to learn from: all rewards are equal; no answer is correct: use easier problems")
    equal = [scored_group(response(correct, 0.5)) for correct in (True, False)]
    (finding,) = LearningSignal.measure(equal, "batch").findings()
    assert finding.endswith("all rewards are equal; but only some answers are correct: check the reward")


def test_problems_that_are_always_or_never_solved_are_named() -> None:
    played = [scored_group(*[response(index % 2 == 0, float(index % 2 == 0))] * 4) for index in range(8)]
    assert "each problem is solved always or never" in LearningSignal.measure(played).findings()[0]


def test_a_constant_reward_is_named() -> None:
    signal = LearningSignal.measure(groups(lambda random: response(random.random() < 0.3, 0.5)))
    assert "only some answers are correct: check the reward" in signal.findings()[0]


def test_a_reward_for_code_alone_is_named() -> None:
    def make(random: Random) -> ScoredTrajectory:
        code = random.random() < 0.5
        return response(random.random() < 0.3, float(code), code=code)

    (finding,) = LearningSignal.measure(groups(make)).findings()
    assert finding.startswith("the reward does not follow the answers")
    assert finding.endswith("it pays for code alone")


def test_rewards_that_differ_without_a_correct_answer_are_named() -> None:
    (finding,) = LearningSignal.measure(groups(lambda random: response(False, random.random()))).findings()
    assert finding == "rewards differ although no answer is correct: it pays for something else"


def test_an_unlearned_habit_failing_code_and_cut_responses_are_named() -> None:
    silent = LearningSignal.measure(groups(lambda _: response(False, -1.0, code=False, cut=True)))
    assert "and no response has code" in silent.findings()[0]
    assert silent.findings()[1].startswith("100% of the responses are cut at the length limit")
    assert silent.pass_ratio is None
    failing = LearningSignal.measure(groups(lambda r: response(r.random() < 0.3, float(r.random() < 2), fails=True)))
    assert failing.findings()[-1] == "100% of the runs fail, most often with NameError"


def test_few_groups_with_different_rewards_are_little_to_learn_from() -> None:
    played = [*with_accuracy(0.0)[:60], *with_accuracy(0.5)[:4]]
    assert LearningSignal.measure(played).findings()[0].startswith("little to learn from: 4 of 64 groups")


def test_groups_of_one_offer_nothing_to_compare() -> None:
    signal = LearningSignal.measure([scored_group(response(True, 1.0))])
    assert "a group has one response (rollout.samples_per_prompt)" in signal.findings()[0]
    with pytest.raises(ValueError, match="no response"):
        LearningSignal.measure([])


def test_correlations_are_those_of_numpy_on_deviations_from_the_groups_mean() -> None:
    random = np.random.default_rng(0)
    played = [
        scored_group(
            *(response(bool(random.random() < 0.4), float(random.normal()), code=bool(i % 3)) for i in range(8))
        )
        for _ in range(20)
    ]
    rewards, correct = (
        np.concatenate([values - np.mean(values) for values in each])
        for each in zip(
            *(
                (
                    [member.total for member in group.members],
                    [float(member.grade.correct) for member in group.members],
                )
                for group in played
            ),
            strict=True,
        )
    )
    expected = np.corrcoef(rewards, correct)[0, 1]
    assert LearningSignal.measure(played).answer_correlation == pytest.approx(expected, abs=1e-12)
