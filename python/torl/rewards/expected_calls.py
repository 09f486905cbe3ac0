"""A reward for calling the right tools in the right way, whatever comes of it (ToolRL)."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torl.errors import RewardError
from torl.options import Section
from torl.rewards.base import Reward
from torl.types import Grade, Group, Problem, ToolRequest, Trajectory

_BEYOND = "TooManyCalls"  # the error of a call beyond those that a response may make


class ExpectedCallsOptions(Section):
    """Options of the reward "expected_calls"."""

    max_reward: float = 3.0
    """Reward of exactly the calls that the problem expects."""
    min_reward: float = -3.0
    """Reward of calls that have nothing in common with them, of none, and of any that is malformed."""


class ExpectedCallsReward(Reward):
    """Pays for how far the calls of a response are those that its problem expects (ToolRL, section 3.3, correctness).

    The answer of a problem are these calls, one on each line: `{"name": "look_up", "parameters": {"word": "Paris"}}`. A
    problem that expects none pays 0, as ToolRL's code does. Its format reward, for tags in their order, is not here.
    """

    def __init__(self, options: ExpectedCallsOptions | None = None) -> None:
        """Take the options of a configuration, or the defaults."""
        self.options = options or ExpectedCallsOptions()

    async def grade(self, group: Group) -> list[Grade]:
        """Every trajectory by itself.

        Raises:
            RewardError: the answer of the problem is no list of calls, or of more than a response may make.
        """
        expected = expected_calls(group.prompt.problem)
        return [self._grade(trajectory, expected) for trajectory in group.trajectories]

    def _grade(self, trajectory: Trajectory, expected: Sequence[ToolRequest]) -> Grade:
        calls = trajectory.tool_calls
        made = [call.request for call in calls if call.request is not None]
        beyond = sum(call.outcome.error == _BEYOND for call in calls)
        if beyond and len(expected) > len(calls) - beyond:
            raise RewardError(
                f"problem {trajectory.prompt.problem.id!r} expects {len(expected)} calls, and a response may make "
                f"{len(calls) - beyond}: raise rollout.max_tool_calls"
            )
        whole = len(made) + beyond == len(calls)
        made += [ToolRequest("", {})] * beyond  # not made, and not expected
        if not expected:
            return Grade(0.0, whole and not made, None)
        share = call_score(made, expected) if whole else 0.0
        worst, best = self.options.min_reward, self.options.max_reward
        return Grade(worst + (best - worst) * share, share == 1, None)


def expected_calls(problem: Problem) -> list[ToolRequest]:
    """The calls that a problem expects.

    Raises:
        RewardError: its answer is no list of calls.
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
    """How much of what is expected was called, between 0 and 1.

    Source: ToolRL, section 3.3, as `compute_tool_call_reward` in its `rlla.py` counts: the names have one point in all;
    each expected call has one for the names of its arguments, and one for each value. It is compared with the best call
    of its tool that no call before it has taken.
    """
    points = _overlap([call.tool for call in made], [call.tool for call in expected])
    left = list(made)
    for call in expected:
        candidates = [other for other in left if other.tool == call.tool]
        best = max(candidates, key=lambda other: _points(other.arguments, call.arguments), default=None)
        if best is not None and (found := _points(best.arguments, call.arguments)) > 0:
            points += found
            left = [other for other in left if other is not best]
    return points / (1 + sum(1 + len(call.arguments) for call in expected))


def _points(made: Mapping[str, Any], expected: Mapping[str, Any]) -> float:
    equal: int = sum(name in made and made[name] == value for name, value in expected.items())
    return _overlap(made, expected) + equal


def _overlap(one: Iterable[str], other: Iterable[str]) -> float:
    """What both have by what either has, each as often as it occurs; 1 where neither has anything."""
    first, second = Counter([*one]), Counter([*other])  # a mapping would be taken for counts
    either: int = (first | second).total()
    both: int = (first & second).total()
    return both / either if either else 1.0
