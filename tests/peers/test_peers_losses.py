"""Losses against TRL's and verl's own functions, on ragged batches with observations; and where they differ."""

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor
from trl.trainer.grpo_trainer import GRPOTrainer
from verl.trainer.ppo import core_algos, rollout_corr_helper
from verl.workers.config import ActorConfig

from ragged import RaggedBatch, ragged_batches
from torl.algorithms.aggregation import AGGREGATIONS
from torl.algorithms.losses import (
    POLICY_LOSSES,
    CorrectionInputs,
    IcepopBounds,
    LossInputs,
    MisBounds,
    PolicyLossValues,
    clipped_value_loss,
    icepop,
    kl_to_reference,
    mis,
    tis,
)

thorough = settings(max_examples=500, deadline=None)
batches = ragged_batches(min_sampled=1, min_rows=2)
seeds = st.integers(0, 2**32 - 1)
# torl's aggregations by their names at verl and TRL.
VERL_AGGREGATIONS = {
    "token": "token-mean",
    "sequence": "seq-mean-token-mean",
    "fixed_length": "seq-mean-token-sum-norm",
}
FIXED_LENGTH = 50
exact = {"rtol": 1e-6, "atol": 1e-9}


class Numbers:
    """Random logprobs and advantages of a batch in float64: flat for torl, padded for the peers."""

    def __init__(self, batch: RaggedBatch, seed: int, *, spread: float = 0.5) -> None:
        generator = np.random.default_rng(seed)
        tokens = int(batch.lengths.sum())
        old = -3 * generator.random(tokens)
        self.batch = batch
        self.flat = {
            "logprobs": old + generator.normal(0, spread, tokens),
            "old": old,
            "rollout": old + generator.normal(0, 0.3, tokens),
            "ref": old + generator.normal(0, spread, tokens),
            "advantages": generator.normal(0, 1, tokens),
            "values": generator.normal(0, 1, tokens),
            "returns": generator.normal(0, 1, tokens),
        }
        self.mask = torch.from_numpy(batch.mask)
        self.sequences = torch.from_numpy(np.repeat(np.arange(len(batch.masks)), batch.lengths))
        self.padded_mask = torch.tensor(batch.padded(batch.mask))

    def __getitem__(self, name: str) -> Tensor:
        return torch.tensor(self.flat[name])

    def padded(self, name: str) -> Tensor:
        return torch.tensor(self.batch.padded(self.flat[name]))

    def sampled(self) -> CorrectionInputs:
        return CorrectionInputs(self["old"], self["rollout"], self.mask, self.sequences)

    def weights(self, aggregation: str) -> Tensor:
        counts = [sum(mask) for mask in self.batch.masks]
        options = {"length": FIXED_LENGTH} if aggregation == "fixed_length" else {}
        weights = AGGREGATIONS[aggregation](counts, **options)
        return torch.from_numpy(np.repeat(weights, self.batch.lengths))


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


def loss_and_gradient(loss: Tensor, inputs: Tensor) -> tuple[float, Tensor]:
    (gradient,) = torch.autograd.grad(loss, inputs)
    return loss.item(), gradient


# --- verl -----------------------------------------------------------------------------------------------------------


def actor(low: float, high: float, dual_clip: float) -> Any:
    config = ActorConfig(
        strategy="fsdp",
        ppo_micro_batch_size_per_gpu=1,
        rollout_n=1,
        clip_ratio_low=low,
        clip_ratio_high=high,
        clip_ratio_c=dual_clip,
    )
    config.global_batch_info.update(loss_scale_factor=FIXED_LENGTH)
    return config


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
    found = kl_to_reference(numbers["logprobs"], numbers["ref"], numbers.mask, estimator)
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


class Accelerator:
    num_processes = 1

    def gather(self, tensor: Tensor) -> Tensor:
        return tensor

    def reduce(self, tensor: Tensor, reduction: str) -> Tensor:
        return tensor


def trl_loss(numbers: Numbers, logprobs: Tensor, loss_type: str, low: float, high: float, **options: Any) -> Tensor:
    """`GRPOTrainer._compute_loss`, with a trainer that holds nothing but the settings it reads."""
    trainer = SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *_, **__: (logprobs, torch.zeros_like(logprobs), None),
        _entropy_bonus_enabled=False,
        _metrics={"eval": defaultdict(list)},
        accelerator=Accelerator(),
        args=SimpleNamespace(delta=None, use_bias_correction_kl=False, steps_per_generation=1),
        aux_loss_enabled=False,
        beta=options.get("beta", 0.0),
        current_gradient_accumulation_steps=1,
        epsilon_high=high,
        epsilon_low=low,
        importance_sampling_level=options.get("level", "token"),
        loss_type=loss_type,
        max_completion_length=FIXED_LENGTH,
        model=SimpleNamespace(training=False),
        off_policy_mask_threshold=None,
        top_entropy_quantile=1.0,
        use_adaptive_entropy=False,
        use_vllm=False,
        vllm_importance_sampling_correction=False,
    )
    mask = numbers.padded_mask
    inputs = {
        "prompt_ids": torch.zeros((len(mask), 1), dtype=torch.int64),
        "prompt_mask": torch.ones((len(mask), 1), dtype=torch.int64),
        "completion_ids": torch.zeros(mask.shape, dtype=torch.int64),
        "completion_mask": torch.ones_like(mask),
        "tool_mask": mask,
        "advantages": numbers.padded("advantages"),
        "old_per_token_logps": numbers.padded("old"),
        "ref_per_token_logps": numbers.padded("ref"),
        "num_items_in_batch": mask.sum(),
    }
    return GRPOTrainer._compute_loss(trainer, None, inputs)


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
    per_token = per_token + kl_coefficient * kl_to_reference(logprobs, numbers["ref"], numbers.mask, "k3")
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
    found = kl_to_reference(logprobs, ref_logprobs, torch.tensor([True]), "k3")
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
