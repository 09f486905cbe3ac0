"""Estimators that look at tool use: ASPO for early code, AdaTIR for few calls, GTPO for similar code. No torch.

ASPO and AdaTIR change advantages after the group's normalization, and only of correct responses, so that these stay
better than wrong ones.
"""

from dataclasses import replace
from difflib import SequenceMatcher
from typing import Literal

import numpy as np

from torl.base.options import NonNegativeFloat, PositiveFloat, PositiveFraction, PositiveInt
from torl.base.types import ScoredTrajectory
from torl.components.algorithms.advantages import EstimatorInputs, Float64Array, TokenAdvantages
from torl.components.algorithms.requirements import requires
from torl.components.algorithms.reward_advantages import TurnDiscount, group_advantages, gtpo, indices_by_group

_MARGIN = 0.1
"""Fraction of A that AdaTIR leaves to a correct response: any positive one keeps it better than wrong ones."""


def aspo(inputs: EstimatorInputs, *, weight: NonNegativeFloat = 2.0, limit: PositiveFraction = 0.7) -> TokenAdvantages:
    """GRPO's advantage A, plus a bonus for early code in correct responses (ASPO, arXiv 2508.19201).

    The bonus of a correct response with code is clip(-weight * (p - mean p) / mean L, -limit |A|, limit |A|), with p
    the number of sampled tokens before its first code and L its sampled tokens; means are over the group's correct
    responses with code. The clip keeps the sign of A, and A = 0 as it is. Only the paper's description was read, not
    its equation: which responses enter the means, and the defaults, are torl's reading.

    Args:
        inputs: Inputs with graded trajectories.
        weight: Weight of the bonus.
        limit: Maximum bonus as a fraction of |A|.
    """
    advantages_N = group_advantages("grpo", inputs.totals, inputs.groups_N).astype(np.float64)
    place_N, length_N = inputs.first_code.astype(np.float64), inputs.sampled_tokens.astype(np.float64)
    eligible_N = inputs.correct & (place_N >= 0)
    bonus_N = np.zeros(len(advantages_N))
    for indices in map(np.array, indices_by_group(inputs.groups_N)):
        chosen = indices[eligible_N[indices]]
        if len(chosen):
            mean_length = max(1.0, float(length_N[chosen].mean()))
            bonus_N[chosen] = -weight * (place_N[chosen] - place_N[chosen].mean()) / mean_length
    bound_N = limit * np.abs(advantages_N)
    return TokenAdvantages(inputs.broadcast_to_tokens(advantages_N + np.clip(bonus_N, -bound_N, bound_N)))


@requires(uniform_groups=True)
def adatir(inputs: EstimatorInputs, max_calls: PositiveInt, *, weight: PositiveFloat = 0.5) -> TokenAdvantages:
    """GRPO's advantage A, plus a centered penalty on calls where a problem is easy (AdaTIR, arXiv 2601.14696).

    The penalty of a correct response is -weight * sin(pi / 2 * min(calls / max_calls, 1)), in groups with fewer wrong
    than correct answers. Its deviation from the mean over the group's correct responses is added to A, but never leaves
    a correct response with less than 0.1 * A. The paper clips to the same end; its exact bound was not read, and
    centering is torl's reading of its normalization.

    Args:
        inputs: Inputs with graded trajectories.
        max_calls: Number of calls with the largest penalty, such as `rollout.max_tool_calls`.
        weight: Weight of the penalty.
    """
    advantages_N = group_advantages("grpo", inputs.totals, inputs.groups_N).astype(np.float64)
    correct_N, calls_N = inputs.correct, inputs.calls
    for indices in map(np.array, indices_by_group(inputs.groups_N)):
        right = indices[correct_N[indices]]
        if len(right) < 2 or 2 * len(right) <= len(indices):
            continue
        penalty = -weight * np.sin(np.pi / 2 * np.minimum(calls_N[right] / max_calls, 1.0))
        advantages_N[right] = np.maximum(
            advantages_N[right] + _centered(penalty), _MARGIN * np.maximum(advantages_N[right], 0.0)
        )
    return TokenAdvantages(inputs.broadcast_to_tokens(advantages_N))


def _centered(values: Float64Array) -> Float64Array:
    """Return the deviations from the mean, exactly 0 for equal values."""
    return np.zeros(len(values)) if np.ptp(values) == 0 else values - values.mean()


@requires(uniform_groups=True)
def gtpo_similar_code(
    inputs: EstimatorInputs,
    share: NonNegativeFloat = 0.5,
    *,
    discount: TurnDiscount = 0.9,
    baseline: Literal["group", "turn"] = "group",
) -> TokenAdvantages:
    """`gtpo`, with a share of the missing reward for wrong responses whose code resembles correct code (GTPO).

    The reward of a wrong response rises by `share` * similarity * (reward of the correct response - its own), for the
    correct response of the group with the most similar code. The paper compares embeddings of the code; this function
    compares texts (`difflib.SequenceMatcher.ratio`), which needs no other model and gives equal programs 1 as well.

    Args:
        inputs: Inputs with graded trajectories.
        share: Share of the difference that code equal to correct code is given.
        discount: Discount factor per turn.
        baseline: Returns over which mean and std are computed, as for `gtpo`.
    """
    rewards_N, correct_N = inputs.rewards_N.copy(), inputs.correct
    codes = [_code(member) for member in inputs.members_N]
    for indices in map(np.array, indices_by_group(inputs.groups_N)):
        right = indices[correct_N[indices]]
        for index in indices[~correct_N[indices]]:
            found = [(similarity(codes[index], codes[other]), inputs.rewards_N[other]) for other in right]
            if found:
                likeness, reward = max(found)
                rewards_N[index] += share * likeness * max(0.0, reward - inputs.rewards_N[index])
    return gtpo(replace(inputs, rewards_N=rewards_N), discount=discount, baseline=baseline)


def similarity(code: str, other: str) -> float:
    """Return the similarity of two programs, from 0 to 1; 0 if one is empty."""
    return SequenceMatcher(None, code, other, autojunk=False).ratio() if code and other else 0.0


def _code(member: ScoredTrajectory) -> str:
    return "\n".join(block.code for turn in member.trajectory.turns for block in turn.blocks)
