"""The papers' reward and its shapings, by hand. Answers here are compared without a grader process."""

from types import SimpleNamespace

import numpy as np
import pytest
from pydantic import ValidationError

from builders import call, failed, group, printed, trajectory
from torl.options import ChosenFrom
from torl.rewards import REWARDS, BoxedOptions, BoxedReward
from torl.rewards.shaping import has_valid_format, overlong_punishment, ran_failing_code
from torl.types import FinishReason, Grade, OutcomeStatus, ToolCall, Trajectory

ERROR = call(outcome=failed())
OK = call(outcome=printed())
OUT_OF_TIME = call(outcome=failed("", status=OutcomeStatus.TIMEOUT))
NO_CODE = call(None)


async def graded(played: Trajectory, options: BoxedOptions | None = None, max_response_tokens: int = 100) -> Grade:
    (grade,) = await BoxedReward(options).grade(group(played, max_response_tokens=max_response_tokens))
    return grade


@pytest.mark.parametrize(
    ("text", "calls", "reward", "correct", "answer"),
    [
        (r"so \boxed{204}", [OK], 1.0, True, "204"),
        (r"so \boxed{205}", [OK], -1.0, False, "205"),
        ("so 204", [], -1.0, False, None),
        (r"\boxed{204}", [ERROR, OK], 0.5, True, "204"),
        (r"\boxed{}", [OUT_OF_TIME], -1.5, False, ""),
        (r"\boxed{204}", [NO_CODE], 1.0, True, "204"),  # the penalty is for code that ran
    ],
)
async def test_grades(text: str, calls: list[object], reward: float, correct: bool, answer: str | None) -> None:
    played = trajectory(*[""] * len(calls), text, answer="204", calls=calls)  # type: ignore[arg-type]
    grade = await graded(played, BoxedOptions(failed_code=-0.5))
    assert (grade.reward, grade.correct, grade.answer, grade.failure) == (reward, correct, answer, None)


@pytest.mark.parametrize(
    ("text", "finish", "reward"),
    [
        ("so</think> <answer>\\boxed{204}</answer>", FinishReason.STOP, 1.0),
        ("so</think> <answer>\\boxed{204}</answer>", FinishReason.LENGTH, 0.0),
        ("so \\boxed{204}", FinishReason.STOP, 0.0),
        ("so</think> <answer>\\boxed{205}</answer>", FinishReason.STOP, 0.0),
    ],
)
async def test_a_reward_that_asks_for_the_format(text: str, finish: FinishReason, reward: float) -> None:
    options = BoxedOptions(wrong=0.0, require_format="zerotir")
    grade = await graded(trajectory(text, answer="204", finish=finish), options)
    assert (grade.reward, grade.correct) == (reward, "204" in text)  # a correct answer is correct at any reward
    assert grade.valid_format == ("</think>" in text and finish is FinishReason.STOP)
    assert grade.credited == (reward == 1.0)


@pytest.mark.parametrize(
    ("calls", "paid"),
    [
        ([OK, OK], (0.0, 0.0, 0.0)),
        ([ERROR, NO_CODE], (0.0, -0.1, 0.0)),  # code that fails is a call all the same
        ([NO_CODE], (-0.1, 0.0)),
        ([], (-0.1,)),
    ],
)
async def test_malformed_call_has_a_turn_penalty(calls: list[ToolCall], paid: tuple[float, ...]) -> None:
    """And the first for none (GTPO, section 3.3). The answer is rewarded at the end, as without it."""
    played = trajectory(*[""] * len(calls), r"\boxed{204}", answer="204", calls=calls)
    grade = await graded(played, BoxedOptions(malformed_turn=-0.1))
    assert (grade.reward, grade.turn_rewards) == (1.0, paid)
    assert (await graded(played)).turn_rewards == ()


@pytest.mark.parametrize(
    ("text", "calls", "reward"),
    [("205", 0, -1.0), ("205", 1, -0.9), ("205", 3, -0.7), ("205", 6, -0.6), ("204", 3, 1.0), ("no box", 2, -0.8)],
)
async def test_a_wrong_answer_costs_less_where_tools_were_called(text: str, calls: int, reward: float) -> None:
    """-1 + 0.1 for each turn that calls, at most -0.6 (`compute_score` in verl's `recipe/retool/retool.py`)."""
    boxed = text if text == "no box" else f"\\boxed{{{text}}}"
    played = trajectory(*[""] * calls, boxed, answer="204", calls=[OK] * calls)
    grade = await graded(played, BoxedOptions(call_bonus=0.1))
    assert grade.reward == pytest.approx(reward)
    assert grade.parts["wrong_calls"] == pytest.approx(0 if text == "204" else reward + 1)


async def test_an_observation_is_no_answer() -> None:
    printing = call(outcome=printed("\\boxed{204}"))
    assert (await graded(trajectory("", "I see.", answer="204", calls=[printing]))).answer is None


async def test_a_grade_names_the_parts_that_are_configured() -> None:
    played = trajectory("", r"\boxed{204}", answer="204", calls=[ERROR], turn_tokens=44)  # 90 tokens
    assert (await graded(played)).parts == {"answer": 1.0}
    everything = BoxedOptions(correct=2.0, failed_code=-0.5, overlong_buffer=20, overlong_penalty=3.0)
    grade = await graded(played, everything)
    assert grade.parts == {"answer": 2.0, "failed_code": -0.5, "length": -1.5}
    assert grade.reward == 0.0
    short = trajectory("", r"\boxed{204}", answer="204", calls=[OK])
    assert (await graded(short, everything)).parts == {"answer": 2.0, "failed_code": 0.0, "length": 0.0}
    assert (await graded(played, BoxedOptions(overlong_buffer=20, overlong_penalty=0.0))).parts == {"answer": 1.0}


async def test_the_length_is_judged_by_the_limit_that_the_group_was_played_with() -> None:
    played = trajectory(r"\boxed{1}", turn_tokens=90)
    options = BoxedOptions(overlong_buffer=20)
    assert (await graded(played, options, max_response_tokens=100)).reward == 0.5
    assert (await graded(played, options, max_response_tokens=90)).reward == 0.0
    assert (await graded(played, options, max_response_tokens=200)).reward == 1.0


async def test_grades_are_in_the_order_of_the_trajectories() -> None:
    played = [trajectory(f"\\boxed{{{number}}}", answer="3", sample=number) for number in range(8)]
    grades = await BoxedReward().grade(group(*played))
    assert [grade.answer for grade in grades] == list("01234567")
    assert [grade.correct for grade in grades] == [number == 3 for number in range(8)]


def test_a_buffer_as_long_as_a_response_may_be_is_refused() -> None:
    rollout = SimpleNamespace(max_response_tokens=100)
    BoxedOptions(overlong_buffer=99).check_within(SimpleNamespace(rollout=rollout))
    with pytest.raises(ValueError, match=r"overlong_buffer must be below rollout.max_response_tokens \(100\)"):
        BoxedOptions(overlong_buffer=100).check_within(SimpleNamespace(rollout=rollout))


def test_the_reward_is_chosen_by_its_name_and_takes_its_own_options_only() -> None:
    rewards = ChosenFrom(REWARDS, "reward", "boxed")
    reward = rewards.choose({"failed_code": -0.5}).make()
    assert isinstance(reward, BoxedReward)
    assert reward.options == BoxedOptions(failed_code=-0.5)
    with pytest.raises(ValidationError, match="failed_cod"):
        rewards.choose({"name": "boxed", "failed_cod": -0.5})


# --- shapings -----------------------------------------------------------------------------------------------------


def test_overlong_punishment_by_hand() -> None:
    punishments = overlong_punishment([10, 80, 85, 90, 100], limit=100, buffer=20)
    assert punishments.tolist() == pytest.approx([0, 0, -0.25, -0.5, -1.0])
    assert not overlong_punishment([100], limit=100, buffer=0).any()
    assert overlong_punishment([1, 40], limit=40, buffer=39).dtype == np.float64


@pytest.mark.parametrize(
    ("calls", "failing"), [([], False), ([OK], False), ([NO_CODE], False), ([OK, OUT_OF_TIME], True), ([ERROR], True)]
)
def test_code_that_failed(calls: list[object], failing: bool) -> None:
    assert ran_failing_code(trajectory(*[""] * (len(calls) + 1), calls=calls)) == failing  # type: ignore[arg-type]


def test_a_format_is_kept_only_by_a_response_that_ended() -> None:
    text = "so</think> <answer>\\boxed{204}</answer>"
    assert has_valid_format(trajectory(text), "zerotir")
    assert not has_valid_format(trajectory(text, finish=FinishReason.LENGTH), "zerotir")
    assert not has_valid_format(trajectory("so \\boxed{204}"), "orz")
