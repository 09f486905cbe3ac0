"""GTPO: turn rewards for malformed calls, and a share of the reward for code that resembles correct code.

The advantage estimator "gtpo" is torl's.
"""

from collections import defaultdict
from dataclasses import replace
from difflib import SequenceMatcher
from typing import Literal

from torl import (
    EstimatorInputs,
    Grade,
    NonNegativeFloat,
    PositiveFraction,
    ScoredTrajectory,
    TokenAdvantages,
    Trajectory,
)
from torl.algorithms.advantages import gtpo


def malformed_turn(trajectory: Trajectory) -> Grade:
    """Reward each turn with 1 that has a malformed call, and a first turn without a call (with a weight of -0.1)."""
    return Grade(0.0, turn_rewards=tuple(map(float, malformed_turns(trajectory))))


def malformed_turns(trajectory: Trajectory) -> list[bool]:
    """Return for each turn whether it has a call that cannot be made, or is the first and has no call."""
    calls = [trajectory.calls_in(turn) for turn in trajectory.turns]
    return [not (made or number) or not all(call.ran for call in made) for number, made in enumerate(calls)]


def with_similar_code(
    inputs: EstimatorInputs,
    share: NonNegativeFloat = 0.5,
    discount: PositiveFraction = 0.9,
    baseline: Literal["group", "turn"] = "group",
) -> TokenAdvantages:
    """GTPO's estimator, with a share of the missing reward for wrong responses whose code resembles correct code.

    The reward of a wrong response rises by `share` * similarity * (reward of the correct response - its own), for the
    correct response of the group with the most similar code. The paper compares embeddings of the code; this function
    compares texts (`difflib.SequenceMatcher.ratio`), which needs no other model and gives equal programs 1 as well.

    Args:
        inputs: Inputs with graded trajectories.
        share: Share of the difference that code equal to correct code is given.
        discount: Discount factor per turn.
        baseline: Returns over which mean and std are computed, as for `gtpo`.
    """
    groups: defaultdict[object, list[int]] = defaultdict(list)
    for index, group in enumerate(inputs.groups_N):
        groups[group].append(index)
    rewards_N = inputs.rewards_N.copy()
    for indices in groups.values():
        right = [index for index in indices if inputs.correct[index]]
        for index in (each for each in indices if not inputs.correct[each]):
            code = _code(inputs.members_N[index])
            found = [(similarity(code, _code(inputs.members_N[other])), inputs.rewards_N[other]) for other in right]
            if found:
                likeness, reward = max(found)
                rewards_N[index] += share * likeness * max(0.0, reward - inputs.rewards_N[index])
    return gtpo(replace(inputs, rewards_N=rewards_N), discount=discount, baseline=baseline)


def similarity(code: str, other: str) -> float:
    """Return the similarity of two programs, from 0 to 1; 0 if one is empty."""
    return SequenceMatcher(None, code, other, autojunk=False).ratio() if code and other else 0.0


def _code(member: ScoredTrajectory) -> str:
    return "\n".join(block.code for turn in member.trajectory.turns for block in turn.blocks)
