"""The losses of 2026 against TRL's and verl's own functions: loss and gradient on ragged batches with observations."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from verl.trainer.ppo import core_algos, rollout_corr_helper

from peer_losses import FIXED_LENGTH, Numbers, actor, exact, loss_and_gradient, trl_loss
from ragged import ragged_batches
from torl.components.algorithms.losses import CORRECTIONS, KL_ESTIMATORS, POLICY_LOSSES, BatchTokens, LossInputs
from torl.components.algorithms.losses.correction import GeometricBounds
from torl.components.algorithms.requirements import requirements_of

thorough = settings(max_examples=200, deadline=None)
batches = ragged_batches(min_sampled=1, min_rows=2)
seeds = st.integers(0, 2**32 - 1)


def numbers_of(batch: Any, seed: int) -> Numbers:
    """Log-probabilities below 0, and one advantage for each sequence, as the peers' trainers have."""
    numbers = Numbers(batch, seed)
    for name in ("logprobs", "rollout"):
        numbers.flat[name] = np.minimum(numbers.flat[name], -1e-3)
    numbers.flat["advantages"] = np.random.default_rng(seed).normal(0, 1, len(batch.masks))[numbers.sequences]
    return numbers


def inputs_of(
    numbers: Numbers, logprobs: Tensor, *, engine: str = "rollout", values: Tensor | None = None
) -> LossInputs:
    return LossInputs(
        logprobs,
        numbers["old"],
        numbers["advantages"],
        numbers.mask,
        numbers.sequences,
        numbers[engine],
        numbers["entropies"],
        numbers["ref"],
        values,
    )


def require_equal(numbers: Numbers, expected: Tensor, padded: Tensor, terms: Tensor, logprobs: Tensor) -> None:
    expected_loss, expected_gradient = loss_and_gradient(expected, padded)
    loss, gradient = loss_and_gradient(terms.sum(), logprobs)
    assert loss == pytest.approx(expected_loss, rel=1e-6, abs=1e-8 * max(1.0, terms.abs().sum().item()))
    found, mask = numbers.batch.padded(gradient.numpy()), numbers.padded_mask
    np.testing.assert_allclose(found, expected_gradient * mask, rtol=1e-6, atol=1e-8)


# --- TRL ------------------------------------------------------------------------------------------------------------


@thorough
@given(batches, seeds)
def test_sapo_equals_trl(batch, seed) -> None:
    numbers = numbers_of(batch, seed)
    padded, logprobs = (get("logprobs").requires_grad_() for get in (numbers.padded, numbers.__getitem__))
    expected = trl_loss(numbers, padded, "sapo", 0.2, 0.2)
    rounded = float(np.float32(1.05))  # TRL's temperatures are float32
    per_token = POLICY_LOSSES["sapo"](inputs_of(numbers, logprobs), temperatures=(1.0, rounded)).per_token
    require_equal(numbers, expected, padded, numbers.weights("sequence") * per_token, logprobs)


@thorough
@given(batches, seeds)
def test_vespo_equals_trl(batch, seed) -> None:
    """TRL's ratio is to the trainer's log-probabilities if it does not correct for the engine."""
    numbers = numbers_of(batch, seed)
    padded, logprobs = (get("logprobs").requires_grad_() for get in (numbers.padded, numbers.__getitem__))
    expected = trl_loss(numbers, padded, "vespo", 0.2, 0.2)
    per_token = POLICY_LOSSES["vespo"](inputs_of(numbers, logprobs, engine="old")).per_token
    require_equal(numbers, expected, padded, numbers.weights("token") * per_token, logprobs)


@thorough
@given(batches, seeds)
def test_luspo_is_gspo_with_sums_over_sequences_as_in_trl(batch, seed) -> None:
    numbers = numbers_of(batch, seed)
    padded, logprobs = (get("logprobs").requires_grad_() for get in (numbers.padded, numbers.__getitem__))
    expected = trl_loss(numbers, padded, "luspo", 3e-4, 4e-4, level="sequence")
    per_token = POLICY_LOSSES["gspo"](inputs_of(numbers, logprobs), clip_low=3e-4, clip_high=4e-4).per_token
    weights = numbers.weights("fixed_length") * FIXED_LENGTH  # of the length 1
    require_equal(numbers, expected, padded, weights * per_token, logprobs)


@thorough
@given(batches, seeds, st.sampled_from([0.02, 0.1]))
def test_the_sequence_mask_equals_trl(batch, seed, threshold) -> None:
    numbers = numbers_of(batch, seed)
    padded, logprobs = (get("logprobs").requires_grad_() for get in (numbers.padded, numbers.__getitem__))
    expected = trl_loss(numbers, padded, "grpo", 0.2, 0.28, threshold=threshold)
    inputs = inputs_of(numbers, logprobs)
    per_token = POLICY_LOSSES["sequence_masked"](inputs, threshold, clip_low=0.2, clip_high=0.28).per_token
    require_equal(numbers, expected, padded, numbers.weights("sequence") * per_token, logprobs)


@thorough
@given(batches, seeds, st.sampled_from([0.2, 0.5]))
def test_the_high_entropy_share_equals_trl(batch, seed, share) -> None:
    numbers = numbers_of(batch, seed)
    numbers.flat["entropies"] = numbers.flat["entropies"].astype(np.float32).astype(np.float64)
    padded, logprobs = (get("logprobs").requires_grad_() for get in (numbers.padded, numbers.__getitem__))
    expected = trl_loss(numbers, padded, "dapo", 0.2, 0.28, share=share)
    values = batch_values("high_entropy", numbers, share=share)
    inputs = inputs_of(numbers, logprobs, values=values)
    per_token = POLICY_LOSSES["high_entropy"](inputs, share=share, clip_low=0.2, clip_high=0.28).per_token
    require_equal(numbers, expected, padded, numbers.weights("token") * per_token, logprobs)


@thorough
@given(batches, seeds)
def test_the_unbiased_kl_term_equals_trl(batch, seed) -> None:
    numbers = numbers_of(batch, seed)
    numbers.flat["advantages"] *= 0
    padded, logprobs = (get("logprobs").requires_grad_() for get in (numbers.padded, numbers.__getitem__))
    expected = trl_loss(numbers, padded, "dapo", 0.2, 0.2, beta=0.1, unbiased=True)
    kl = KL_ESTIMATORS["unbiased"](inputs_of(numbers, logprobs)).masked_fill(~numbers.mask, 0.0)
    require_equal(numbers, expected, padded, 0.1 * numbers.weights("token") * kl, logprobs)


# --- verl -----------------------------------------------------------------------------------------------------------


def verl_loss(name: str, numbers: Numbers, padded: Tensor, old: str, **settings: Any) -> Tensor:
    config = actor(settings.pop("low", 0.2), settings.pop("high", 0.2), 20.0)
    for option, value in settings.items():
        object.__setattr__(config.policy_loss, option, value)
    loss, _ = core_algos.get_policy_loss_fn(name)(
        old_log_prob=numbers.padded(old),
        log_prob=padded,
        advantages=numbers.padded("advantages"),
        response_mask=numbers.padded_mask.to(torch.float64),
        loss_agg_mode="token-mean",
        config=config,
    )
    return loss


@thorough
@given(batches, seeds, st.sampled_from(["tv", "kl"]), st.sampled_from([0.05, 0.2]))
def test_dppo_equals_verl(batch, seed, divergence, clip) -> None:
    numbers = numbers_of(batch, seed)
    padded, logprobs = (get("logprobs").requires_grad_() for get in (numbers.padded, numbers.__getitem__))
    expected = verl_loss(f"dppo_{divergence}", numbers, padded, "rollout", low=clip, high=clip)
    inputs = inputs_of(numbers, logprobs)
    per_token = POLICY_LOSSES["dppo"](inputs, divergence=divergence, clip_low=clip, clip_high=clip).per_token
    require_equal(numbers, expected, padded, numbers.weights("token") * per_token, logprobs)


@thorough
@given(batches, seeds)
def test_gmpo_equals_verl(batch, seed) -> None:
    numbers = numbers_of(batch, seed)
    padded, logprobs = (get("logprobs").requires_grad_() for get in (numbers.padded, numbers.__getitem__))
    expected = verl_loss("geo_mean", numbers, padded, "old", low=0.4, high=0.4)
    per_token = POLICY_LOSSES["gmpo"](inputs_of(numbers, logprobs)).per_token
    require_equal(numbers, expected, padded, numbers.weights("sequence") * per_token, logprobs)


def batch_values(name: str, numbers: Numbers, **options: float) -> Tensor:
    """The numbers of the whole batch, as the learner computes them, one for each token."""
    function = requirements_of(POLICY_LOSSES[name]).batch_values
    assert function is not None
    mask = numbers.batch.mask
    arrays = {
        each: numbers.flat[each][mask].astype(np.float32) for each in ("advantages", "rollout", "old", "entropies")
    }
    sequences = numbers.sequences.numpy()[mask]
    tokens = BatchTokens(
        arrays["advantages"], arrays["rollout"], sequences, 0, arrays["old"], None, arrays["entropies"]
    )
    values = np.zeros(len(mask))
    values[mask] = function(tokens, **options)
    return torch.tensor(values)


@thorough
@given(batches, seeds, st.sampled_from([0.05, 0.3]))
def test_kl_cov_equals_verl_before_the_first_update(batch, seed, share) -> None:
    """verl chooses tokens by the current log-probabilities; torl by those before the first update."""
    numbers = numbers_of(batch, seed)
    numbers.flat["advantages"] = np.random.default_rng(seed).normal(0, 1, len(numbers.sequences))  # no ties
    numbers.flat = {name: array.astype(np.float32).astype(np.float64) for name, array in numbers.flat.items()}
    moved = dict(numbers.flat)
    numbers.flat["old"] = numbers.flat["logprobs"]
    padded, logprobs = (get("logprobs").requires_grad_() for get in (numbers.padded, numbers.__getitem__))
    expected = verl_loss("kl_cov", numbers, padded, "old", kl_cov_ratio=share, ppo_kl_coef=1.0)
    values = batch_values("kl_cov", numbers, share=share)
    per_token = POLICY_LOSSES["kl_cov"](inputs_of(numbers, logprobs, values=values), share=share).per_token
    require_equal(numbers, expected, padded, numbers.weights("token") * per_token, logprobs)
    # With the tokens chosen, the loss after an update is verl's, too.
    after = numbers["old"] + 0.1 * torch.tensor(moved["returns"])
    chosen = values > 0
    expected_after = -(after - numbers["old"]).exp() * numbers["advantages"] + chosen * (after - numbers["old"]).abs()
    found = POLICY_LOSSES["kl_cov"](inputs_of(numbers, after, values=values), share=share).per_token
    torch.testing.assert_close(found[numbers.mask], expected_after[numbers.mask], rtol=1e-6, atol=1e-9)


@thorough
@given(batches, seeds)
def test_clip_cov_equals_verl_where_all_tokens_in_the_range_are_dropped(batch, seed) -> None:
    """Both draw at random if there are more: here, as many may be dropped as the batch has."""
    numbers = numbers_of(batch, seed)
    numbers.flat = {name: array.astype(np.float32).astype(np.float64) for name, array in numbers.flat.items()}
    numbers.flat["old"] = numbers.flat["logprobs"]
    padded, logprobs = (get("logprobs").requires_grad_() for get in (numbers.padded, numbers.__getitem__))
    options = {"share": 1.0, "covariance_range": (0.1, 5.0)}
    expected = verl_loss("clip_cov", numbers, padded, "old", clip_cov_ratio=1.0, clip_cov_lb=0.1, clip_cov_ub=5.0)
    values = batch_values("clip_cov", numbers, **options)
    per_token = POLICY_LOSSES["clip_cov"](inputs_of(numbers, logprobs, values=values), **options).per_token
    require_equal(numbers, expected, padded, numbers.weights("token") * per_token, logprobs)


@thorough
@given(batches, seeds, st.sampled_from(["geometric", "mean_kl"]))
def test_sequence_masks_equal_verl(batch, seed, name) -> None:
    """verl's k1 bounds rollout / trainer, torl's trainer / rollout: its bounds are the inverses."""
    numbers = numbers_of(batch, seed)
    if name == "geometric":
        found = CORRECTIONS[name](numbers.sampled(), GeometricBounds(low=0.8, high=1.1))
        option, bounds = "seq_mean_k1", f"{1 / 1.1}_{1 / 0.8}"
    else:
        found = CORRECTIONS[name](numbers.sampled(), high=0.05)
        option, bounds = "seq_mean_k3", 0.05
    kept, _ = rollout_corr_helper.compute_rollout_rejection_mask(
        numbers.padded("old") - numbers.padded("rollout"), numbers.padded_mask.to(torch.float64), option, bounds
    )
    ours = torch.where(numbers.mask, found, 0)
    np.testing.assert_allclose(batch.padded(ours.numpy()), kept * numbers.padded_mask, **exact)
