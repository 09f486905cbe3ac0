"""Estimators that shape the advantages of tool use: ASPO for early code, AdaTIR for few calls. No torch.

They change advantages after the group's normalization, and only of correct responses, so that correct responses stay
better than wrong ones.
"""

import numpy as np

from torl.algorithms.advantages import (
    EstimatorInputs,
    Float64Array,
    TokenAdvantages,
    group_advantages,
    indices_by_group,
)
from torl.options import NonNegativeFloat, PositiveFloat, PositiveFraction, PositiveInt


def aspo(inputs: EstimatorInputs, *, weight: NonNegativeFloat = 2.0, limit: PositiveFraction = 0.7) -> TokenAdvantages:
    """GRPO's advantage A, plus a bonus for early code in correct responses (ASPO, arXiv 2508.19201).

    The bonus of a correct response with code is clip(-weight * (p - mean p) / mean L, -limit |A|, limit |A|), with p
    the number of sampled tokens before its first code and L its sampled tokens; means are over the group's correct
    responses with code. The clip keeps the sign of A. Only the paper's description was read, not its equation: which
    responses enter the means, and the defaults, are torl's reading.

    Args:
        inputs: Inputs with graded trajectories.
        weight: Weight of the bonus.
        limit: Maximum bonus as a fraction of |A|.
    """
    advantages_N = group_advantages("grpo", inputs.totals, inputs.groups_N).astype(np.float64)
    place_N, length_N = inputs.first_code.astype(np.float64), inputs.sampled_tokens.astype(np.float64)
    eligible_N = inputs.correct & (place_N >= 0)
    bonus_N = np.zeros(len(advantages_N))
    for indices in indices_by_group(inputs.groups_N):
        chosen = indices[eligible_N[indices]]
        if len(chosen):
            mean_length = max(1.0, float(length_N[chosen].mean()))
            bonus_N[chosen] = -weight * (place_N[chosen] - place_N[chosen].mean()) / mean_length
    bound_N = limit * np.abs(advantages_N)
    return TokenAdvantages(inputs.broadcast_to_tokens(advantages_N + np.clip(bonus_N, -bound_N, bound_N)))


def adatir(
    inputs: EstimatorInputs,
    max_calls: PositiveInt,
    *,
    weight: PositiveFloat = 0.5,
    difficulty: PositiveFraction = 0.5,
    margin: PositiveFraction = 0.1,
) -> TokenAdvantages:
    """GRPO's advantage A, plus the normalized penalty on calls where a problem is easy (AdaTIR, arXiv 2601.14696).

    The penalty of a correct response is -weight * sin(pi / 2 * min(calls / max_calls, 1)), in groups whose fraction of
    wrong answers is below `difficulty`. It is normalized over the group's correct responses and added to A, but never
    leaves a correct response with less than `margin` * A. The paper clips to the same end; its exact bound was not
    read.

    Args:
        inputs: Inputs with graded trajectories.
        max_calls: Number of calls with the largest penalty, such as `rollout.max_tool_calls`.
        weight: Weight of the penalty.
        difficulty: Fraction of wrong answers from which on calls are free.
        margin: Fraction of A that is left to a correct response.
    """
    advantages_N = group_advantages("grpo", inputs.totals, inputs.groups_N).astype(np.float64)
    correct_N, calls_N = inputs.correct, inputs.calls
    for indices in indices_by_group(inputs.groups_N):
        right = indices[correct_N[indices]]
        if len(right) < 2 or 1 - len(right) / len(indices) >= difficulty:
            continue
        penalty = -weight * np.sin(np.pi / 2 * np.minimum(calls_N[right] / max_calls, 1.0))
        advantages_N[right] = np.maximum(
            advantages_N[right] + _centered(penalty), margin * np.maximum(advantages_N[right], 0.0)
        )
    return TokenAdvantages(inputs.broadcast_to_tokens(advantages_N))


def _centered(values: Float64Array) -> Float64Array:
    """Return the deviations from the mean, exactly 0 for equal values."""
    return np.zeros(len(values)) if np.ptp(values) == 0 else values - values.mean()
