"""ToolRL: its rewards for the expected tool calls, regardless of their outcome, and for the order of its tags."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torl import Grade, Group, Problem, Reward, RewardError, ToolRequest, Trajectory

_WORST, _BEST = -3.0, 3.0
_TOO_MANY = "TooManyCalls"  # the error of a call beyond the limit of a response


class ExpectedCallsReward(Reward):
    """Rewards the match of a response's calls with those that its problem expects (section 3.3, correctness).

    The answer of a problem is a list of calls, one on each line: `{"name": "look_up", "parameters": {"word":
    "Paris"}}`. The reward is 3 for exactly these calls, -3 for none of them and for any malformed
    call, and 0 for a problem that expects none, as in ToolRL's code.
    """

    async def grade(self, group: Group) -> list[Grade]:
        expected = expected_calls(group.prompt.problem)
        return [self._grade(trajectory, expected) for trajectory in group.trajectories]

    def _grade(self, trajectory: Trajectory, expected: Sequence[ToolRequest]) -> Grade:
        calls = trajectory.tool_calls
        made = [call.request for call in calls if call.request is not None]
        beyond = sum(call.outcome.error == _TOO_MANY for call in calls)
        if beyond and len(expected) > len(calls) - beyond:
            raise RewardError(
                f"problem {trajectory.prompt.problem.id!r} expects {len(expected)} calls, and a response may make "
                f"{len(calls) - beyond}: raise rollout.max_tool_calls"
            )
        whole = len(made) + beyond == len(calls)
        made += [ToolRequest("", {})] * beyond  # neither made nor expected
        if not expected:
            return Grade(0.0, whole and not made, None)
        share = call_score(made, expected) if whole else 0.0
        return Grade(_WORST + (_BEST - _WORST) * share, share == 1, None)


def tag_order(trajectory: Trajectory) -> float:
    """Return 1 if the first turn has ToolRL's tags in their order, else 0 (section 3.3, format).

    A problem that expects calls wants `<think>` and `<tool_call>`, any other `<think>` and `<response>`. A problem with
    `"response": true` wants all three.
    """
    problem = trajectory.prompt.problem
    calls = bool(expected_calls(problem))
    responds = not calls or problem.metadata.get("response") is True
    return float(bool(trajectory.turns) and has_tag_order(trajectory.turns[0].text, calls=calls, responds=responds))


def has_tag_order(text: str, *, calls: bool, responds: bool) -> bool:
    """Whether a text is thoughts, then calls and a response where expected, each once, one on a line.

    Source: `customize_format_reward_func` of ToolRL's `rlla.py`.
    """
    tags = [tag for tag, expected in (("tool_call", calls), ("response", responds)) if expected]
    if any(text.count(mark) != 1 for tag in tags for mark in (f"<{tag}>", f"</{tag}>")):
        return False
    sections = ["<think>.*?</think>"]
    sections += ["<tool_call>\\n.*?\\n</tool_call>"] if calls else []
    sections += ["<response>.*?</response>"] if responds else []
    return re.fullmatch("\\n".join(sections), text.strip(), re.DOTALL) is not None


def expected_calls(problem: Problem) -> list[ToolRequest]:
    """Return the calls that a problem expects.

    Raises:
        RewardError: The problem's answer is not a list of calls.
    """
    try:
        calls = [json.loads(line) for line in problem.answer.splitlines() if line.strip()]
        return [ToolRequest(call["name"], dict(call["parameters"])) for call in calls]
    except (ValueError, TypeError, KeyError) as error:
        raise RewardError(
            f"problem {problem.id!r}: the reward 'expected_calls' needs an answer with a call on each line, as "
            f'{{"name": "look_up", "parameters": {{"word": "Paris"}}}}: {type(error).__name__}: {error}'
        ) from error


def call_score(made: Sequence[ToolRequest], expected: Sequence[ToolRequest]) -> float:
    """Return the fraction of the expected calls that was made, between 0 and 1.

    Source: section 3.3, counted as by `compute_tool_call_reward` in its `rlla.py`: one point for all names; for each
    expected call one point for the names of its arguments and one for each value. An expected call is compared with the
    best remaining call of its tool.
    """
    points = _overlap([call.tool for call in made], [call.tool for call in expected])
    remaining = list(made)
    for call in expected:
        candidates = [other for other in remaining if other.tool == call.tool]
        best = max(candidates, key=lambda other: _points(other.arguments, call.arguments), default=None)
        if best is not None and (found := _points(best.arguments, call.arguments)) > 0:
            points += found
            remaining = [other for other in remaining if other is not best]
    return points / (1 + sum(1 + len(call.arguments) for call in expected))


def _points(made: Mapping[str, Any], expected: Mapping[str, Any]) -> float:
    equal: int = sum(name in made and made[name] == value for name, value in expected.items())
    return _overlap(made, expected) + equal


def _overlap(one: Iterable[str], other: Iterable[str]) -> float:
    """Return the size of the multisets' intersection over that of their union; 1 if both are empty."""
    first, second = Counter([*one]), Counter([*other])  # Counter would read a mapping as counts
    either: int = (first | second).total()
    both: int = (first & second).total()
    return both / either if either else 1.0
