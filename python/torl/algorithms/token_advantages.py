"""Estimators that discount rewards token by token: REINFORCE++, and PPO with a critic. No torch."""

from typing import Annotated

import numpy as np
from pydantic import Field

import torl._core as _core
from torl.algorithms.advantages import EstimatorInputs, Float64Array, TokenAdvantages
from torl.algorithms.group_advantages import group_advantages
from torl.algorithms.requirements import requires
from torl.options import PositiveFraction

Lambda = Annotated[float, Field(ge=0, le=1)]


def reinforce_plus_plus(inputs: EstimatorInputs, *, discount: PositiveFraction = 1.0) -> TokenAdvantages:
    """Token-level returns, whitened over all sampled tokens of the step (REINFORCE++, arXiv 2501.03262).

    The return of token t is the sum over s >= t of discount^(s - t) * r_s. Whitening is (x - mean) / sqrt(var + 1e-8)
    with the unbiased variance.

    Args:
        inputs: Inputs of the estimator.
        discount: Discount factor per sampled token.
    """
    return _whitened_returns(inputs, inputs.rewards_N, discount)


def reinforce_plus_plus_baseline(inputs: EstimatorInputs, *, discount: PositiveFraction = 1.0) -> TokenAdvantages:
    """`reinforce_plus_plus` with the group mean subtracted from each trajectory's reward (arXiv 2501.03262).

    Rewards of single tokens are neither part of the mean nor changed.

    Args:
        inputs: Inputs of the estimator.
        discount: Discount factor per sampled token.
    """
    centered_N = group_advantages("dr_grpo", inputs.rewards_N, inputs.groups_N).astype(np.float64)
    return _whitened_returns(inputs, centered_N, discount)


@requires(critic=True)
def ppo(inputs: EstimatorInputs, *, discount: PositiveFraction = 1.0, gae_lambda: Lambda = 1.0) -> TokenAdvantages:
    """Generalized advantage estimation with a critic (GAE, arXiv 1506.02438, equation 16), for PPO.

    A_t = sum over l >= 0 of (discount * gae_lambda)^l * delta_(t+l), with delta_t = r_t + discount * V_(t+1) - V_t. The
    value targets are A_t + V_t.

    Args:
        inputs: Inputs with the critic's values.
        discount: Discount factor per sampled token.
        gae_lambda: GAE lambda: 0 gives one-step temporal-difference errors, 1 the returns minus the values.

    Raises:
        ValueError: The inputs have no values.
    """
    if inputs.values_M is None:
        raise ValueError("estimator 'ppo' requires the values of a critic")
    advantages_M, returns_M = _core.generalized_advantages(
        inputs.rewards_N,
        inputs.token_rewards_M,
        inputs.values_M,
        inputs.lengths_N,
        inputs.mask_M,
        discount,
        gae_lambda,
    )
    return TokenAdvantages(advantages_M, returns_M)


def _whitened_returns(inputs: EstimatorInputs, rewards_N: Float64Array, discount: float) -> TokenAdvantages:
    lengths_N, mask_M = inputs.lengths_N, inputs.mask_M
    if inputs.token_rewards_M is None and discount == 1:  # all tokens of a trajectory have the same return
        return TokenAdvantages(inputs.broadcast_to_tokens(_core.whiten_rows(rewards_N, lengths_N, mask_M)))
    returns_M = _core.discounted_returns(rewards_N, inputs.token_rewards_M, lengths_N, mask_M, discount)
    return TokenAdvantages(_core.whiten(returns_M, lengths_N, mask_M))
