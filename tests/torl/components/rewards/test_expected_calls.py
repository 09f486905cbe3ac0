"""ToolRL's reward for the calls of a response, against values worked out by hand from its formula."""

import json
from dataclasses import replace
from typing import Any

import pytest

from builders import asked, call, group, trajectory
from torl.base.errors import RewardError
from torl.base.types import ToolRequest
from torl.components.formats.format import TOO_MANY_CALLS
from torl.recipes.toolrl import ExpectedCallsReward, call_score, has_tag_order, tag_order

Calls = list[tuple[str, dict[str, Any]]]
WEATHER: Calls = [("weather", {"city": "Rome", "days": 3})]
BOTH: Calls = [*WEATHER, ("time", {})]


def requests(calls: Calls) -> list[ToolRequest]:
    return [ToolRequest(name, arguments) for name, arguments in calls]


@pytest.mark.parametrize(
    ("made", "expected", "points", "max_points"),
    [
        # The most: 1 for the names, and for each expected call 1 and the number of its arguments.
        (WEATHER, WEATHER, 1 + 1 + 2, 4),
        (BOTH, BOTH, 1 + 3 + 1, 5),
        (BOTH[::-1], BOTH, 1 + 3 + 1, 5),
        ([], WEATHER, 0, 4),
        ([("time", {})], WEATHER, 0, 4),
        ([("weather", {"city": "Rome", "days": 4})], WEATHER, 1 + 1 + 1, 4),
        ([("weather", {"city": "Paris", "day": 3})], WEATHER, 1 + 1 / 3 + 0, 4),
        ([("weather", {})], WEATHER, 1 + 0 + 0, 4),
        ([("weather", {"city": "Rome", "days": 3, "unit": "C"})], WEATHER, 1 + 2 / 3 + 2, 4),
        (WEATHER, BOTH, 1 / 2 + 3, 5),
        (BOTH, WEATHER, 1 / 2 + 3, 4),
        # The same tool twice: each call is compared with the best that is left.
        (
            [("a", {"x": 1}), ("a", {"x": 2})],
            [("a", {"x": 2}), ("a", {"x": 1})],
            1 + 2 + 2,
            5,
        ),
        ([("a", {"x": 1})], [("a", {"x": 1}), ("a", {"x": 1})], 1 / 2 + 2, 5),
        ([("a", {"x": 1})] * 3, [("a", {"x": 1})], 1 / 3 + 2, 3),
    ],
)
def test_points_by_the_formula(made: Calls, expected: Calls, points: float, max_points: int) -> None:
    assert call_score(requests(made), requests(expected)) == pytest.approx(points / max_points)


def answer_of(calls: Calls) -> str:
    return "\n".join(json.dumps({"name": name, "parameters": arguments}) for name, arguments in calls)


async def grades(expected: str, *responses: Calls | None) -> list[tuple[float, bool]]:
    """Rewards of responses with these calls; None represents one malformed call in addition to a right one."""
    prompt = asked("p", answer=expected)
    played = []
    for calls in responses:
        made = [replace(call(), request=request) for request in requests(WEATHER if calls is None else calls)]
        made += [call(None)] if calls is None else []
        played.append(trajectory(*["a turn"] * (len(made) + 1), prompt=prompt, calls=made))
    graded = await ExpectedCallsReward().grade(group(*played))
    return [(grade.reward, grade.correct) for grade in graded]


async def test_rewards_between_the_worst_and_the_best() -> None:
    half: Calls = [("weather", {"city": "Paris", "days": 4})]
    assert await grades(answer_of(WEATHER), WEATHER, half, [], None) == [
        (3.0, True),
        (pytest.approx(6 * 2 / 4 - 3), False),
        (-3.0, False),
        (-3.0, False),
    ]


async def test_calls_beyond_the_limit_are_unexpected() -> None:
    beyond = replace(call(None), outcome=TOO_MANY_CALLS)
    made = [replace(call(), request=request) for request in requests(WEATHER)]
    played = trajectory(*"abc", prompt=asked("p", answer=answer_of(WEATHER)), calls=[*made, beyond])
    (grade,) = await ExpectedCallsReward().grade(group(played))
    assert grade.reward == pytest.approx(6 * (1 / 2 + 3) / 4 - 3)
    more = replace(played, prompt=asked("p", answer=answer_of(BOTH)))
    with pytest.raises(
        RewardError, match=r"'p' expects 2 calls, and a response may make 1: raise rollout\.max_tool_cal"
    ):
        await ExpectedCallsReward().grade(group(more))


async def test_no_expected_call_gives_no_reward() -> None:
    assert await grades("", [], WEATHER) == [(0.0, True), (0.0, False)]


@pytest.mark.parametrize("answer", ["Rome", '["weather"]', '{"name": "weather"}', '{"name": "w", "parameters": 3}'])
async def test_invalid_reference_calls_are_named(answer: str) -> None:
    with pytest.raises(RewardError, match=r"problem 'p': the reward 'expected_calls' needs an answer with a call on"):
        await grades(answer, [])


THINK, CALL, RESPONSE = "<think>a</think>", "<tool_call>\n{}\n</tool_call>", "<response>b</response>"


@pytest.mark.parametrize(
    ("text", "calls", "responds", "ordered"),
    [
        (f"{THINK}\n{CALL}", True, False, True),
        (f"{THINK}\n{RESPONSE}", False, True, True),
        (f"{THINK}\n{CALL}\n{RESPONSE}", True, True, True),
        (f"{CALL}\n{THINK}", True, False, False),
        (f"{THINK}{CALL}", True, False, False),
        (f"{THINK}\n{CALL}\n{CALL}", True, False, False),
        (f"{THINK}\n{CALL}", False, True, False),
        (f"{THINK}\n{CALL}", True, True, False),
        (f"{THINK}\n{RESPONSE}\n{CALL}", True, True, False),
        (f"Well. {THINK}\n{CALL}", True, False, False),
        (f"{THINK}\n<tool_call>{{}}</tool_call>", True, False, False),
    ],
)
def test_tags_count_once_and_in_their_order(text: str, calls: bool, responds: bool, ordered: bool) -> None:
    assert has_tag_order(text, calls=calls, responds=responds) is ordered


def test_expected_sections_follow_from_the_problem() -> None:
    expects_calls, expects_none = asked("p", answer=answer_of(WEATHER)), asked("p", answer="\n")
    responds = replace(expects_calls, problem=replace(expects_calls.problem, metadata={"response": True}))
    for prompt, text in (
        (expects_calls, f"{THINK}\n{CALL}"),
        (expects_none, f"{THINK}\n{RESPONSE}"),
        (responds, f"{THINK}\n{CALL}\n{RESPONSE}"),
    ):
        values = [tag_order(replace(trajectory(each), prompt=prompt)) for each in (text, f"{text} ", f"x {text}", "")]
        assert values == [1.0, 1.0, 0.0, 0.0]
