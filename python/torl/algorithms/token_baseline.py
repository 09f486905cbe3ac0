"""The optimal token baseline: a baseline for each position of a group's responses. No torch."""

import numpy as np

import torl._core as _core
from torl.algorithms.advantages import EstimatorInputs, TokenAdvantages
from torl.algorithms.requirements import requires

_EPSILON = 1e-8


@requires(old_logprobs=True, collision_probs=True)
def optimal_token_baseline(inputs: EstimatorInputs) -> TokenAdvantages:
    """Token-level returns minus the baseline with the least variance at each position (OTB, as verl's `tir_optimal_token_baseline`).

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
    weighted = np.bincount(places_K, weights_K * returns_K) / (np.bincount(places_K, weights_K) + _EPSILON)
    advantages_M = np.zeros(len(mask_M), np.float32)
    advantages_M[sampled] = returns_K - np.where(members > 1, weighted, 0)[places_K]
    return TokenAdvantages(advantages_M)
