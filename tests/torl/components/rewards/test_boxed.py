"""Rubrics and the parts of published rewards, by hand. Answers here are compared without a grader process."""

from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from builders import call, failed, group, printed, trajectory
from torl.base.errors import ComponentError
from torl.base.types import FinishReason, Grade, Group, OutcomeStatus, ToolCall, Trajectory
from torl.components.rewards import MathOptions, MathReward, Reward, Rubric, RubricOptions, make_reward
from torl.recipes.dapo import MAX_CHARACTERS, overlong_penalty
from torl.recipes.torl import failed_code
from torl.run.config.choices import RewardChoice

ERROR = call(outcome=failed())
OK = call(outcome=printed())
OUT_OF_TIME = call(outcome=failed("", status=OutcomeStatus.TIMEOUT))
NO_CODE = call(None)


async def graded(played: Trajectory, max_response_tokens: int = 100, **parts: Any) -> Grade:
    rubric = Rubric(RubricOptions.model_validate({"parts": {"answer": "math", **parts}}))
    (grade,) = await rubric.grade(group(played, max_response_tokens=max_response_tokens))
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
    grade = await graded(played, failed_code={"weight": -0.5})
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
    answer = {"name": "math", "wrong": 0.0, "require_format": "zerotir"}
    grade = await graded(trajectory(text, answer="204", finish=finish), answer=answer)
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
    grade = await graded(played, malformed_turn={"weight": -0.1})
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
    grade = await graded(played, call_bonus={"weight": 0.1})
    assert grade.reward == pytest.approx(reward)
    assert grade.parts["call_bonus"] == pytest.approx(0 if text == "204" else reward + 1)


async def test_observation_is_not_an_answer() -> None:
    printing = call(outcome=printed("\\boxed{204}"))
    assert (await graded(trajectory("", "I see.", answer="204", calls=[printing]))).answer is None


async def test_a_grade_names_the_parts_that_are_configured() -> None:
    played = trajectory("", r"\boxed{204}", answer="204", calls=[ERROR], turn_tokens=44)  # 90 tokens
    assert (await graded(played)).parts == {"answer": 1.0}
    everything: dict[str, Any] = {
        "answer": {"name": "math", "correct": 2.0},
        "failed_code": {"weight": -0.5},
        "length": {"name": "overlong", "buffer": 20, "weight": 3.0},
    }
    grade = await graded(played, **everything)
    assert grade.parts == {"answer": 2.0, "failed_code": -0.5, "length": -1.5}
    assert grade.reward == 0.0
    short = trajectory("", r"\boxed{204}", answer="204", calls=[OK])
    assert (await graded(short, **everything)).parts == {"answer": 2.0, "failed_code": 0.0, "length": 0.0}


async def test_the_length_is_judged_by_the_limit_that_the_group_was_played_with() -> None:
    played = trajectory(r"\boxed{1}", turn_tokens=90)
    assert (await graded(played, 100, overlong={"buffer": 20})).reward == 0.5
    assert (await graded(played, 90, overlong={"buffer": 20})).reward == 0.0
    assert (await graded(played, 200, overlong={"buffer": 20})).reward == 1.0


async def test_grades_are_in_the_order_of_the_trajectories() -> None:
    played = [trajectory(f"\\boxed{{{number}}}", answer="3", sample=number) for number in range(8)]
    grades = await MathReward().grade(group(*played))
    assert [grade.answer for grade in grades] == list("01234567")
    assert [grade.correct for grade in grades] == [number == 3 for number in range(8)]


def test_a_buffer_as_long_as_a_response_may_be_is_refused() -> None:
    rollout = SimpleNamespace(max_response_tokens=100)

    def check(buffer: int) -> None:
        options = RubricOptions.model_validate({"parts": {"length": {"name": "overlong", "buffer": buffer}}})
        options.check_within(SimpleNamespace(rollout=rollout))

    check(99)
    with pytest.raises(ValueError, match=r"parts.length: buffer = 100 must be below rollout.max_response_tokens"):
        check(100)


def test_the_reward_is_chosen_by_its_name_and_takes_its_own_options_only() -> None:
    reward = choose({"name": "math", "wrong": -0.5})
    assert isinstance(reward, MathReward)
    assert reward.options == MathOptions(wrong=-0.5)
    with pytest.raises(ValidationError, match="wrog"):
        choose({"name": "math", "wrog": -0.5})
    rubric = choose({})
    assert isinstance(rubric, Rubric)
    assert [(name, part.name) for name, part in rubric.options.parts.items()] == [("answer", "math")]
    with pytest.raises(ValueError, match="no reward part is called 'judg'; did you mean judge"):
        choose({"parts": {"judg": {"weight": 0.2}}})


# --- custom parts -------------------------------------------------------------------------------------------------


def choose(section: Any) -> Any:
    return make_reward(TypeAdapter(RewardChoice).validate_python(section))


def brief(trajectory: Trajectory, limit: int = 4) -> float:
    return 1.0 if len(trajectory) <= limit else 0.25


async def cautious(trajectory: Trajectory) -> Grade:
    return Grade(0.5, answer="7", valid_format=False, turn_rewards=(1.0,) * len(trajectory.turns))


def endless(trajectory: Trajectory) -> float:
    return float("inf")


def broken(trajectory: Trajectory) -> float:
    raise KeyError("weights")


async def failing(trajectory: Trajectory) -> float:
    raise KeyError("weights")


class Comparing(Reward):
    """Reads the grades of the parts before it."""

    async def grade(self, group: Group) -> list[Grade]:
        rewards = [grade.reward for grade in group.grades]
        return [Grade(reward, correct=True, parts={"one": 1.0, "two": reward - 1.0}) for reward in rewards]


async def test_a_function_of_a_trajectory_is_a_reward() -> None:
    played = [trajectory("a", turn_tokens=4), trajectory("a", turn_tokens=5)]
    grades = await choose(f"{__name__}:brief").grade(group(*played))
    assert [(grade.reward, grade.correct, grade.parts) for grade in grades] == [
        (1.0, True, {"brief": 1.0}),
        (0.25, False, {"brief": 0.25}),
    ]
    (grade,) = await choose({"name": f"{__name__}:brief", "limit": 5}).grade(group(played[1]))
    assert grade.reward == 1.0


async def test_parts_add_up_with_their_weights() -> None:
    played = trajectory("", r"\boxed{204}", answer="204", turn_tokens=9)
    brief_part = {"name": f"{__name__}:brief", "weight": 2.0}
    grade = await graded(played, brief=brief_part, cautious={"name": f"{__name__}:cautious", "weight": -1.0})
    assert grade.parts == {"answer": 1.0, "brief": 0.5, "cautious": -0.5}
    assert (grade.reward, grade.turn_rewards, grade.total) == (1.0, (-1.0, -1.0), -1.0)
    assert (grade.correct, grade.answer, grade.valid_format, grade.credited) == (True, "204", False, False)


async def test_a_part_sees_the_grades_before_it_and_its_own_parts_are_named_after_it() -> None:
    grade = await graded(trajectory("no", answer="1"), compared={"name": f"{__name__}:Comparing", "weight": 0.5})
    assert grade.parts == {"answer": -1.0, "compared/one": 0.5, "compared/two": -1.0}
    assert (grade.reward, grade.correct) == (-1.5, True)


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("endless", ComponentError, r"endless\) returned an invalid value from endless\(.*\)\n.*inf"),
        ("broken", ComponentError, r"broken\) failed in broken\(.*\)\nKeyError: 'weights'"),
        ("failing", ComponentError, r"failing\) failed in failing\(.*\)\nKeyError: 'weights'"),
    ],
)
async def test_a_broken_function_stops_the_run(name: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        await choose(f"{__name__}:{name}").grade(group(trajectory("a")))


async def test_a_part_that_loses_a_grade_stops_the_run() -> None:
    class Forgetful(Reward):
        async def grade(self, group: Group) -> list[Grade]:
            return []

    rubric = Rubric(RubricOptions())
    rubric._parts["answer"] = type(rubric._parts["answer"])(Forgetful(), 1.0)
    with pytest.raises(ComponentError, match="expected 1 grades, one for each trajectory; got 0"):
        await rubric.grade(group(trajectory("a")))


# --- shapings -----------------------------------------------------------------------------------------------------


def test_overlong_punishment_by_hand() -> None:
    penalties = [overlong_penalty(tokens, limit=100, buffer=20) for tokens in (10, 80, 85, 90, 100)]
    assert penalties == pytest.approx([0, 0, -0.25, -0.5, -1.0])


@pytest.mark.parametrize(
    ("calls", "failing"), [([], False), ([OK], False), ([NO_CODE], False), ([OK, OUT_OF_TIME], True), ([ERROR], True)]
)
def test_code_that_failed(calls: list[object], failing: bool) -> None:
    assert failed_code(trajectory(*[""] * (len(calls) + 1), calls=calls)) == failing  # type: ignore[arg-type]


async def test_a_format_is_kept_only_by_a_response_that_ended() -> None:
    text = "so</think> <answer>\\boxed{204}</answer>"

    async def is_valid(played: Trajectory, format: str) -> bool:
        return (await graded(played, answer={"name": "math", "require_format": format})).valid_format

    assert await is_valid(trajectory(text), "zerotir")
    assert not await is_valid(trajectory(text, finish=FinishReason.LENGTH), "zerotir")
    assert not await is_valid(trajectory("so \\boxed{204}"), "orz")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("so Answer: 204", "204"),
        ("Answer: 1\nanswer : 204 \nDone.", "204"),
        (r"Answer: 204 and \boxed{205}", r"204 and \boxed{205}"),
        (r"\boxed{204}", None),
        ("Answer: 204" + " " * MAX_CHARACTERS, None),
        ("Answer:", None),
    ],
)
async def test_dapos_answer_is_the_last_line_near_the_end(text: str, answer: str | None) -> None:
    reward = MathReward(MathOptions.model_validate({"answer": "dapo"}))
    (grade,) = await reward.grade(group(trajectory(text, answer="204 and \\boxed{205}" if answer != "204" else "204")))
    assert (grade.answer, grade.correct) == (answer, answer is not None)
