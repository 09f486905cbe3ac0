"""Losses against TRL's and verl's own functions, on ragged batches with observations; and where they differ."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor
from verl.trainer.ppo import core_algos, rollout_corr_helper

from peer_losses import VERL_AGGREGATIONS, Numbers, actor, exact, loss_and_gradient, trl_loss
from ragged import RaggedBatch, ragged_batches
from torl.components.algorithms.losses import (
    KL_ESTIMATORS,
    POLICY_LOSSES,
    CorrectionInputs,
    IcepopBounds,
    LossInputs,
    MisBounds,
    PolicyLossValues,
    clipped_value_loss,
    icepop,
    mis,
    tis,
)

thorough = settings(max_examples=500, deadline=None)
batches = ragged_batches(min_sampled=1, min_rows=2)
seeds = st.integers(0, 2**32 - 1)


def kl(name: str, logprobs: Tensor, ref_logprobs: Tensor, mask: Tensor) -> Tensor:
    other = torch.zeros_like(ref_logprobs)
    inputs = LossInputs(
        logprobs, logprobs.detach(), other, mask, torch.zeros_like(mask, dtype=torch.int64), other, other
    )
    return KL_ESTIMATORS[name](replace(inputs, ref_logprobs=ref_logprobs)).masked_fill(~mask, 0.0)


def ours(name: str, numbers: Numbers, logprobs: Tensor, low: float, high: float) -> PolicyLossValues:
    inputs = LossInputs(
        logprobs,
        numbers["old"],
        numbers["advantages"],
        numbers.mask,
        numbers.sequences,
        numbers["old"],
        torch.zeros_like(numbers["old"]),
    )
    if name == "dual":
        return POLICY_LOSSES["clipped"](inputs, clip_low=low, clip_high=high, dual_clip=1.5)
    return POLICY_LOSSES[name](inputs, clip_low=low, clip_high=high)


# --- verl -----------------------------------------------------------------------------------------------------------


@thorough
@given(
    st.sampled_from(["clipped", "dual", "gspo", "cispo"]),
    st.sampled_from(["token", "sequence", "fixed_length"]),
    batches,
    seeds,
    st.sampled_from([(0.2, 0.2), (0.2, 0.28), (0.05, 0.1)]),
    st.booleans(),
)
def test_policy_losses_equal_verl(name, aggregation, batch, seed, clip, corrected) -> None:
    """Loss and gradient, for every aggregation, with and without importance weights."""
    numbers = Numbers(batch, seed)
    padded = numbers.padded("logprobs").requires_grad_()
    weights = tis(numbers.sampled(), high=2)
    function = core_algos.get_policy_loss_fn({"clipped": "vanilla", "dual": "vanilla"}.get(name, name))
    expected, _ = function(
        old_log_prob=numbers.padded("old"),
        log_prob=padded,
        advantages=numbers.padded("advantages"),
        response_mask=numbers.padded_mask,
        loss_agg_mode=VERL_AGGREGATIONS[aggregation],
        config=actor(*clip, 1.5 if name == "dual" else 1e9),
        rollout_is_weights=torch.tensor(batch.padded(weights.numpy())) if corrected else None,
    )
    expected_loss, expected_gradient = loss_and_gradient(expected, padded)

    logprobs = numbers["logprobs"].requires_grad_()
    per_token = ours(name, numbers, logprobs, *clip).per_token * (weights if corrected else 1)
    terms = numbers.weights(aggregation) * per_token
    loss, gradient = loss_and_gradient(terms.sum(), logprobs)
    # verl adds 1e-8 to the token counts of sequences: each mean is wrong by that share of it, also if they cancel.
    assert loss == pytest.approx(expected_loss, rel=1e-6, abs=1e-8 * terms.abs().sum().item())
    np.testing.assert_allclose(batch.padded(gradient.numpy()), expected_gradient * numbers.padded_mask, **exact)


@thorough
@given(batches, seeds, st.sampled_from(["k1", "k2", "k3"]))
def test_kl_estimates_equal_verl(batch, seed, estimator) -> None:
    numbers = Numbers(batch, seed, spread=1.0)
    expected = core_algos.kl_penalty_forward(numbers["logprobs"], numbers["ref"], estimator)
    found = kl(estimator, numbers["logprobs"], numbers["ref"], numbers.mask)
    # verl cuts k3 off at 10; torl lets a large divergence be large.
    inside = numbers.mask & (expected.abs() < 10)
    torch.testing.assert_close(found[inside], expected[inside], rtol=1e-6, atol=1e-9)


@thorough
@given(batches, seeds, st.sampled_from([0.1, 0.5]))
def test_value_loss_equals_verl(batch, seed, clip) -> None:
    numbers = Numbers(batch, seed)
    values = numbers["values"].requires_grad_()
    expected, _ = core_algos.compute_value_loss(
        torch.tensor(batch.padded(numbers.flat["values"])),
        numbers.padded("returns"),
        numbers.padded("old"),
        numbers.padded_mask,
        clip,
    )
    found = clipped_value_loss(values, numbers["old"], numbers["returns"], numbers.mask, clip=clip)
    assert (numbers.weights("token") * found.per_token).sum().item() == pytest.approx(expected.item(), rel=1e-6)


@thorough
@given(batches, seeds, st.sampled_from([1.5, 2.0, 5.0]))
def test_truncated_importance_weights_equal_verl(batch, seed, high) -> None:
    numbers = Numbers(batch, seed)
    expected, _ = rollout_corr_helper.compute_rollout_correction_weights(
        numbers.padded("old") - numbers.padded("rollout"),
        numbers.padded_mask,
        rollout_is="token",
        rollout_is_threshold=high,
    )
    found = torch.where(numbers.mask, tis(numbers.sampled(), high=high), 0)
    np.testing.assert_allclose(batch.padded(found.numpy()), expected, **exact)


@thorough
@given(batches, seeds, st.sampled_from([("icepop", "token"), ("mis", "sequence")]), st.sampled_from(["0.5_2", "0.9_5"]))
def test_masked_importance_weights_equal_verl(batch, seed, correction, bounds) -> None:
    """IcePop by tokens, MIS by sequences: the weight within the bounds, 0 outside."""
    numbers = Numbers(batch, seed)
    name, level = correction
    low, high = map(float, bounds.split("_"))
    if name == "icepop":
        weights = icepop(numbers.sampled(), IcepopBounds(low=low, high=high))
    else:
        weights = mis(numbers.sampled(), MisBounds(low=low, high=high))
    found = torch.where(numbers.mask, weights, 0)
    assume(found.any())  # if nothing is left, verl's own metrics divide by zero
    expected, _ = rollout_corr_helper.compute_rollout_correction_weights(
        numbers.padded("old") - numbers.padded("rollout"),
        numbers.padded_mask,
        rollout_is=level,
        rollout_is_threshold=bounds,
    )
    np.testing.assert_allclose(batch.padded(found.numpy()), expected, **exact)


def test_verl_rejects_by_the_inverse_ratio() -> None:
    """Its masks named k1 bound rollout / trainer; its weights, and ours, trainer / rollout."""
    log_ratio, mask = torch.tensor([[1.2, -1.2]]), torch.ones(1, 2)
    kept, _ = rollout_corr_helper.compute_rollout_rejection_mask(log_ratio, mask, "token_k1", "0.5_5")
    weights, _ = rollout_corr_helper.compute_rollout_correction_weights(log_ratio, mask, "token", "0.5_5")
    assert kept.tolist() == [[0, 1]]
    assert (weights > 0).tolist() == [[True, False]]
    sequences = torch.zeros(2, dtype=torch.int64)
    inputs = CorrectionInputs(log_ratio[0], torch.zeros(2), mask[0].bool(), sequences)
    ours = icepop(inputs, IcepopBounds(low=0.5, high=5))
    assert ours.tolist() == pytest.approx(weights[0].tolist())


def test_gspo_counts_a_large_ratio_as_it_is() -> None:
    """verl bounds a sequence's log ratio by 10, torl each token's by 20: e^12 is e^10 there."""
    batch = RaggedBatch([0.0], [0], [[True]], np.zeros(1, np.float32), np.zeros(1, np.float32))
    numbers = Numbers(batch, 0)
    numbers.flat |= {"logprobs": np.array([0.0]), "old": np.array([-12.0]), "advantages": np.array([-1.0])}
    expected, _ = core_algos.compute_policy_loss_gspo(
        old_log_prob=numbers.padded("old"),
        log_prob=numbers.padded("logprobs"),
        advantages=numbers.padded("advantages"),
        response_mask=numbers.padded_mask,
        config=actor(0.2, 0.2, 1e9),
    )
    assert expected.item() == pytest.approx(np.exp(10.0))
    assert ours("gspo", numbers, numbers["logprobs"], 0.2, 0.2).per_token.item() == pytest.approx(np.exp(12.0))


# --- TRL ------------------------------------------------------------------------------------------------------------


# TRL's name, its level of ratios, torl's loss, torl's aggregation.
TRL_LOSSES = [
    ("grpo", "token", "clipped", "sequence"),
    ("grpo", "sequence", "gspo", "sequence"),
    ("bnpo", "token", "clipped", "token"),
    ("dapo", "token", "clipped", "token"),
    ("dr_grpo", "token", "clipped", "fixed_length"),
    ("cispo", "token", "cispo", "token"),
]


@thorough
@given(st.sampled_from(TRL_LOSSES), batches, seeds, st.sampled_from([0.0, 0.1]))
def test_policy_losses_equal_trl(case, batch, seed, kl_coefficient) -> None:
    """Loss and gradient with the tool mask, with and without the KL term."""
    loss_type, level, name, aggregation = case
    numbers = Numbers(batch, seed)
    # TRL's trainer has one advantage for each sequence. Where they differ its GSPO is not the paper's GSPO-token.
    numbers.flat["advantages"] = np.random.default_rng(seed).normal(0, 1, len(batch.masks))[numbers.sequences]
    padded = numbers.padded("logprobs").requires_grad_()
    # TRL's CISPO has no lower bound, and its upper one is the bound itself.
    low, high = (1.0, 0.28) if name == "cispo" else (0.2, 0.28)
    theirs_high = 1 + high if name == "cispo" else high
    expected = trl_loss(numbers, padded, loss_type, low, theirs_high, level=level, beta=kl_coefficient)
    expected_loss, expected_gradient = loss_and_gradient(expected, padded)

    logprobs = numbers["logprobs"].requires_grad_()
    per_token = ours(name, numbers, logprobs, low, high).per_token
    per_token = per_token + kl_coefficient * kl("k3", logprobs, numbers["ref"], numbers.mask)
    loss, gradient = loss_and_gradient((numbers.weights(aggregation) * per_token).sum(), logprobs)
    assert loss == pytest.approx(expected_loss, rel=1e-6, abs=1e-9)
    np.testing.assert_allclose(batch.padded(gradient.numpy()), expected_gradient, **exact)


def test_gspo_with_advantages_that_differ_within_a_sequence() -> None:
    """GSPO-token (equation 13 of its paper) gives each token the gradient of its own advantage, as torl and verl do;
    TRL gives all of them the mean."""
    batch = RaggedBatch([0.0], [0], [[True, True]], np.zeros(2, np.float32), np.zeros(2, np.float32))
    numbers = Numbers(batch, 0)
    numbers.flat |= {"logprobs": np.zeros(2), "old": np.zeros(2), "advantages": np.array([1.0, 3.0])}
    padded = numbers.padded("logprobs").requires_grad_()
    _, theirs = loss_and_gradient(trl_loss(numbers, padded, "grpo", 0.2, 0.2, level="sequence"), padded)
    logprobs = numbers["logprobs"].requires_grad_()
    per_token = ours("gspo", numbers, logprobs, 0.2, 0.2).per_token
    _, found = loss_and_gradient((numbers.weights("sequence") * per_token).sum(), logprobs)
    assert theirs.tolist() == [[-1.0, -1.0]]
    assert found.tolist() == [-0.5, -1.5]


def test_a_large_divergence_keeps_its_gradient() -> None:
    """verl cuts k3 off at 10: a token that far from the reference is not pulled back any more."""
    logprobs, ref_logprobs = torch.tensor([-6.0], requires_grad=True), torch.tensor([-2.0])
    expected = core_algos.kl_penalty_forward(logprobs, ref_logprobs, "k3")
    assert loss_and_gradient(expected.sum(), logprobs) == (10.0, torch.tensor([0.0]))
    found = kl("k3", logprobs, ref_logprobs, torch.tensor([True]))
    loss, gradient = loss_and_gradient(found.sum(), logprobs)
    assert loss == pytest.approx(np.exp(4) - 4 - 1)
    assert gradient.item() == pytest.approx(1 - np.exp(4))


def test_the_upper_bound_of_cispo() -> None:
    """TRL's `epsilon_high` is the bound of the ratio, torl's `clip_high` its distance from 1, as in other losses."""
    batch = RaggedBatch([0.0], [0], [[True]], np.zeros(1, np.float32), np.zeros(1, np.float32))
    numbers = Numbers(batch, 0)
    numbers.flat |= {"logprobs": np.array([-1.0]), "old": np.array([-3.0]), "advantages": np.array([1.0])}
    theirs = trl_loss(numbers, numbers.padded("logprobs"), "cispo", 0.0, 0.28)
    assert theirs.item() == pytest.approx(0.28)
    assert ours("cispo", numbers, numbers["logprobs"], 1.0, 0.28).per_token.item() == pytest.approx(1.28)
