"""Estimators with values of single tokens: REINFORCE++, PPO, optimal token baseline, distillation. No torch."""

from typing import Annotated

import numpy as np
from pydantic import Field

import torl._core as _core
from torl.base.options import PositiveFloat, PositiveFraction
from torl.components.algorithms.advantages import EstimatorInputs, Float64Array, TokenAdvantages
from torl.components.algorithms.requirements import requires
from torl.components.algorithms.reward_advantages import group_advantages

Lambda = Annotated[float, Field(ge=0, le=1)]

_MIN_WEIGHT = 1e-8  # as in verl


@requires(across_groups=True)
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


@requires(critic=True, across_groups=True)
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


@requires(old_logprobs=True, collision_probs=True)
def optimal_token_baseline(inputs: EstimatorInputs) -> TokenAdvantages:
    """Token-level returns minus the baseline with the least variance at each position (OTB; verl, `core_algos.py`).

    The baseline of the t-th sampled token is sum(G_t W_t) / (sum(W_t) + 1e-8) over the members of the group that are as
    long, with G_t the sum of rewards from t on and W_t the sum over s <= t of 1 - 2 p_s + sum(p^2): the squared norm of
    the gradient of log p_s with respect to the logits. Observed tokens are left out of the positions. Where only one
    member is as long, its baseline is 0, not its own return. Weights by importance are not applied.

    Args:
        inputs: Inputs with log-probabilities and collision probabilities.

    Raises:
        ValueError: The inputs lack one of them.
    """
    if inputs.old_logprobs_M is None or inputs.collision_probs_M is None:
        raise ValueError("estimator 'optimal_token_baseline' requires log-probabilities and collision probabilities")
    mask_M = inputs.mask_M
    sampled = mask_M.nonzero()[0]
    returns_M = _core.discounted_returns(inputs.rewards_N, inputs.token_rewards_M, inputs.lengths_N, mask_M, 1.0)
    returns_K = returns_M[sampled].astype(np.float64)
    owners_K = np.repeat(np.arange(len(inputs.lengths_N)), inputs.lengths_N)[sampled]
    counts_N = np.bincount(owners_K, minlength=len(inputs.lengths_N))
    starts_N = np.cumsum(counts_N) - counts_N
    norms_K = 1 - 2 * np.exp(inputs.old_logprobs_M[sampled].astype(np.float64)) + inputs.collision_probs_M[sampled]
    sums_K = np.cumsum(norms_K)
    weights_K = sums_K - (sums_K - norms_K)[starts_N[owners_K]]
    numbers = {group: number for number, group in enumerate(dict.fromkeys(inputs.groups_N))}
    groups_N = np.array([numbers[group] for group in inputs.groups_N], np.int64)
    positions_K = np.arange(len(sampled)) - starts_N[owners_K]
    places_K = groups_N[owners_K] * (int(counts_N.max(initial=0)) + 1) + positions_K
    _, places_K, members = np.unique(places_K, return_inverse=True, return_counts=True)
    weighted = np.bincount(places_K, weights_K * returns_K) / (np.bincount(places_K, weights_K) + _MIN_WEIGHT)
    advantages_M = np.zeros(len(mask_M), np.float32)
    advantages_M[sampled] = returns_K - np.where(members > 1, weighted, 0)[places_K]
    return TokenAdvantages(advantages_M)


def _whitened_returns(inputs: EstimatorInputs, rewards_N: Float64Array, discount: float) -> TokenAdvantages:
    lengths_N, mask_M = inputs.lengths_N, inputs.mask_M
    if inputs.token_rewards_M is None and discount == 1:  # all tokens of a trajectory have the same return
        return TokenAdvantages(inputs.broadcast_to_tokens(_core.whiten_rows(rewards_N, lengths_N, mask_M)))
    returns_M = _core.discounted_returns(rewards_N, inputs.token_rewards_M, lengths_N, mask_M, discount)
    return TokenAdvantages(_core.whiten(returns_M, lengths_N, mask_M))


@requires(reference=True, old_logprobs=True, uniform_groups=True)
def distillation(inputs: EstimatorInputs, *, limit: PositiveFloat = 20.0) -> TokenAdvantages:
    """log pi_teacher - log pi of each sampled token; rewards are not used (on-policy distillation, Lu et al. 2025).

    This is the negative k1 estimate of KL(policy || teacher), whose policy gradient is that of the divergence. The
    teacher is the reference model: `algorithm.kl.reference`, which may be the policy itself after another prompt
    (`algorithm.kl.prompt`), with a demonstration (OPSD, arXiv 2601.19897) or with the text of an error (SDPO, arXiv
    2601.20802). The published losses take the divergence over the whole vocabulary; this one takes the sampled token.

    Args:
        inputs: Inputs with the log-probabilities of policy and teacher.
        limit: Maximum of |log pi_teacher - log pi|.

    Raises:
        ValueError: The inputs have no log-probabilities.
    """
    if inputs.ref_logprobs_M is None or inputs.old_logprobs_M is None:
        raise ValueError("estimator 'distillation' requires the log-probabilities of policy and teacher")
    mask_M = inputs.mask_M
    difference_M = np.zeros(len(mask_M), np.float32)
    difference_M[mask_M] = np.clip(inputs.ref_logprobs_M[mask_M] - inputs.old_logprobs_M[mask_M], -limit, limit)
    return TokenAdvantages(difference_M)
