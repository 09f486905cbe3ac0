"""Losses: values worked out by hand, formulas written out, gradients by finite differences, no trace of the cut."""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

import reference
from torl.base.options import ChosenFrom
from torl.components.algorithms.aggregation import AGGREGATIONS
from torl.components.algorithms.losses import (
    CORRECTIONS,
    KL_ESTIMATORS,
    CorrectionInputs,
    LossInputs,
    PolicyLossValues,
    cispo_policy_loss,
    clipped_policy_loss,
    clipped_value_loss,
    gspo_policy_loss,
    kl_of_arrays,
    logprob_gap,
    reinforce_policy_loss,
)

LOG2 = math.log(2.0)
ESTIMATORS = ("k1", "k2", "k3")
Batch = dict[str, Tensor]


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def mask(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.bool)


def whole(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int64)


def random_batch(tokens: int, seed: int) -> Batch:
    """Aligned tensors in float64, with ratios on both sides of every clip; sequences of some ten tokens."""
    generator = torch.Generator().manual_seed(seed)

    def normal(scale: float = 1.0) -> Tensor:
        return scale * torch.randn(tokens, generator=generator, dtype=torch.float64)

    old_logprobs = -3 * torch.rand(tokens, generator=generator, dtype=torch.float64)
    starts = torch.rand(tokens, generator=generator) < 0.1
    return {
        "logprobs": old_logprobs + normal(),
        "old_logprobs": old_logprobs,
        "advantages": normal(),
        "loss_mask": torch.rand(tokens, generator=generator) < 0.7,
        "sequences": torch.cumsum(starts, 0),
        "rollout_logprobs": old_logprobs + normal(0.3),
        "ref_logprobs": old_logprobs + normal(0.5),
    }


def clipped(batch: Batch, dual_clip: float | None = None) -> PolicyLossValues:
    return clipped_policy_loss(loss_inputs(batch), clip_low=0.2, clip_high=0.28, dual_clip=dual_clip)


def gspo(batch: Batch) -> PolicyLossValues:
    return gspo_policy_loss(loss_inputs(batch), clip_low=0.1, clip_high=0.15)


def loss_inputs(batch: Batch) -> LossInputs:
    names = ("logprobs", "old_logprobs", "advantages", "loss_mask", "sequences")
    rollout = batch.get("rollout_logprobs", batch["old_logprobs"])
    return LossInputs(*(batch[name] for name in names), rollout, torch.zeros_like(rollout))


def one_sequence(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, loss_mask: Tensor) -> LossInputs:
    sequences = torch.zeros_like(loss_mask, dtype=torch.int64)
    return LossInputs(
        logprobs, old_logprobs, advantages, loss_mask, sequences, old_logprobs, torch.zeros_like(old_logprobs)
    )


def kl(name: str, logprobs: Tensor, ref_logprobs: Tensor, loss_mask: Tensor) -> Tensor:
    inputs = one_sequence(logprobs, logprobs.detach(), torch.zeros_like(logprobs), loss_mask)
    return KL_ESTIMATORS[name](replace(inputs, ref_logprobs=ref_logprobs))


def importance_weights(name: str, batch: Batch, *, low: float, high: float) -> Tensor:
    """A correction by its name; "tis" and "mean_kl" have no option `low`."""
    keys = ("old_logprobs", "rollout_logprobs", "loss_mask", "sequences")
    options = {"high": high} if name in ("tis", "mean_kl") else {"low": low, "high": high}
    inputs = CorrectionInputs(*(batch[key] for key in keys))
    return ChosenFrom(CORRECTIONS, "correction", positional_count=1).choose({"name": name, **options}).bind()(inputs)


def trajectory_weights(name: str, counts: object, length: int) -> np.ndarray:
    """An aggregation by its name; `length` is an option of "fixed_length" only."""
    options = {"length": length} if name == "fixed_length" else {}
    return AGGREGATIONS[name](counts, **options)


LOSSES: dict[str, Callable[[Batch], PolicyLossValues]] = {
    "clipped": clipped,
    "dual": lambda batch: clipped(batch, dual_clip=1.5),
    "gspo": gspo,
    "cispo": lambda batch: cispo_policy_loss(loss_inputs(batch), clip_low=0.2, clip_high=0.28),
    "reinforce": lambda batch: reinforce_policy_loss(loss_inputs(batch)),
}


def reference_tokens(batch: Batch) -> list[reference.ReferenceToken]:
    """The sampled tokens of a batch."""
    names = ("sequences", "logprobs", "old_logprobs", "advantages", "rollout_logprobs", "ref_logprobs")
    columns = [batch[name][batch["loss_mask"]].tolist() for name in names]
    return [reference.ReferenceToken(*row) for row in zip(*columns, strict=True)]


# --- by hand ------------------------------------------------------------------------------------------------------


def test_the_clip_by_hand() -> None:
    # Ratios 2, 2, 1/2, 1/2, 1 with advantages of both signs; clip to [0.8, 1.28].
    inputs = one_sequence(
        tensor(LOG2, LOG2, -LOG2, -LOG2, 0.0),
        torch.zeros(5, dtype=torch.float64),
        tensor(1.0, -1.0, 1.0, -1.0, 3.0),
        mask(1, 1, 1, 1, 1),
    )
    loss = clipped_policy_loss(inputs, clip_low=0.2, clip_high=0.28)
    # -min(2, 1.28); -min(-2, -1.28); -min(.5, .8); -min(-.5, -.8); -3
    torch.testing.assert_close(loss.per_token, tensor(-1.28, 2.0, -0.5, 0.8, -3.0))
    assert loss.clipped_tokens.item() == 2
    assert loss.dual_clipped_tokens.item() == 0
    # k3 of x = log 2 twice (2 - log 2 - 1) and of -log 2 twice (1/2 + log 2 - 1)
    assert loss.approximate_kl.item() == pytest.approx(2 * (1 - LOG2) + 2 * (LOG2 - 0.5))


def test_the_estimated_divergence_is_from_the_old_policy_to_the_current_one() -> None:
    """k3 of x = log current - log old = log 2 is 2 - log 2 - 1; of its inverse it would be 1/2 + log 2 - 1."""
    inputs = one_sequence(tensor(LOG2), tensor(0.0), tensor(1.0), mask(1))
    for loss in (
        clipped_policy_loss(inputs, clip_low=0.2, clip_high=0.28),
        cispo_policy_loss(inputs, clip_low=0.2, clip_high=0.28),
        gspo_policy_loss(inputs, clip_low=0.2, clip_high=0.28),
        reinforce_policy_loss(inputs),
    ):
        assert loss.approximate_kl.item() == pytest.approx(1 - LOG2)


def test_the_dual_clip_by_hand() -> None:
    # Ratio 8: for A = -2 the loss 16 is cut to 3 * 2; for A = 2 the upper clip holds as before.
    inputs = one_sequence(tensor(3 * LOG2, 3 * LOG2), tensor(0.0, 0.0), tensor(-2.0, 2.0), mask(1, 1))
    loss = clipped_policy_loss(inputs, clip_low=0.2, clip_high=0.2, dual_clip=3.0)
    torch.testing.assert_close(loss.per_token, tensor(6.0, -2.4))
    assert (loss.clipped_tokens.item(), loss.dual_clipped_tokens.item()) == (1, 1)


def test_gspo_by_hand() -> None:
    # Sequence 0: log ratios 2 log 2 and 0 (and one hidden): ratio 2, clipped to 1.5 for A = 1. Sequence 1: ratio 1/2.
    inputs = LossInputs(
        tensor(2 * LOG2, 50.0, 0.0, -LOG2),
        tensor(0.0, 0.0, 0.0, 0.0),
        tensor(1.0, 1.0, 1.0, 3.0),
        mask(1, 0, 1, 1),
        whole(0, 0, 0, 1),
        torch.zeros(4),
        torch.zeros(4),
    )
    loss = gspo_policy_loss(inputs, clip_low=0.5, clip_high=0.5)
    torch.testing.assert_close(loss.per_token, tensor(-1.5, 0.0, -1.5, -1.5))
    assert loss.clipped_tokens.item() == 2


def test_cispo_keeps_the_gradient_of_clipped_tokens() -> None:
    # Ratios 4 and 1/4, clipped to 1.5 and 0.5: the loss is -weight * A * logprob, its gradient -weight * A.
    logprobs = tensor(LOG2, -LOG2).requires_grad_()
    inputs = one_sequence(logprobs, tensor(-LOG2, LOG2), tensor(2.0, -1.0), mask(1, 1))
    loss = cispo_policy_loss(inputs, clip_low=0.5, clip_high=0.5)
    torch.testing.assert_close(loss.per_token, tensor(-3 * LOG2, -0.5 * LOG2))
    loss.per_token.sum().backward()
    assert logprobs.grad is not None
    torch.testing.assert_close(logprobs.grad, tensor(-3.0, 0.5))
    assert loss.clipped_tokens.item() == 2


def test_importance_weights_by_hand() -> None:
    old_logprobs = tensor(0.0, 2 * LOG2, -LOG2, LOG2, 5.0).requires_grad_()
    batch = {
        "old_logprobs": old_logprobs,
        "rollout_logprobs": torch.zeros(5, dtype=torch.float64),
        "loss_mask": mask(1, 1, 1, 1, 0),
        "sequences": whole(0, 0, 1, 1, 1),
    }
    found = {name: importance_weights(name, batch, low=0.6, high=2.0) for name in CORRECTIONS}
    torch.testing.assert_close(found["tis"], tensor(1.0, 2.0, 0.5, 2.0, 1.0))
    torch.testing.assert_close(found["icepop"], tensor(1.0, 0.0, 0.0, 2.0, 1.0))
    torch.testing.assert_close(found["mis"], tensor(0.0, 0.0, 1.0, 1.0, 1.0))  # products 4 and 1
    assert not any(weights.requires_grad for weights in found.values())


def test_kl_by_hand() -> None:
    # The policy gives the token twice the reference's probability: x = -log 2.
    inputs = (tensor(LOG2, 9.0), tensor(0.0, 0.0), mask(1, 0))
    torch.testing.assert_close(kl("k1", *inputs), tensor(LOG2, 0.0))
    torch.testing.assert_close(kl("k2", *inputs), tensor(LOG2**2 / 2, 0.0))
    torch.testing.assert_close(kl("k3", *inputs), tensor(LOG2 - 0.5, 0.0))


def test_the_value_loss_by_hand() -> None:
    inputs = (tensor(2.0, 0.5, 2.0), tensor(0.0, 0.0, 0.0), tensor(1.0, 1.0, 3.0), mask(1, 1, 1))
    loss = clipped_value_loss(*inputs, clip=0.5)
    # Errors 1, 1/4, 1; kept within 1/2 of 0 the values are 1/2, 1/2, 1/2 with errors 1/4, 1/4, 25/4.
    torch.testing.assert_close(loss.per_token, tensor(0.5, 0.125, 3.125))
    assert loss.clipped_tokens.item() == 1
    torch.testing.assert_close(clipped_value_loss(*inputs, clip=None).per_token, tensor(0.5, 0.125, 0.5))


def test_weights_by_hand() -> None:
    counts = [3, 1, 0]
    assert AGGREGATIONS["token"](counts).tolist() == [0.25, 0.25, 0]
    assert AGGREGATIONS["sequence"](counts).tolist() == pytest.approx([1 / 6, 1 / 2, 0])
    assert AGGREGATIONS["fixed_length"](counts, length=10).tolist() == [0.05, 0.05, 0]
    assert AGGREGATIONS["token"]([0]).tolist() == [0]


def test_logprob_gap_by_hand() -> None:
    gap = logprob_gap(tensor(LOG2, -LOG2, 9.0), tensor(0.0, 0.0, 0.0), mask(1, 1, 0))
    assert gap.absolute_sum.item() == pytest.approx(2 * LOG2)
    assert gap.absolute_max.item() == pytest.approx(LOG2)
    assert gap.kl.item() == pytest.approx((1 - LOG2) + (LOG2 - 0.5))
    assert logprob_gap(tensor(), tensor(), mask()).absolute_max.item() == 0


# --- against the formulas -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LOSSES)
def test_each_token_equals_the_formula(name: str) -> None:
    batch = random_batch(500, seed=1)
    loss = LOSSES[name](batch)
    low, high = (0.1, 0.15) if name == "gspo" else (0.2, 0.28)
    expected = reference.policy_loss(name, reference_tokens(batch), low, high, 1.5 if name == "dual" else None)
    torch.testing.assert_close(loss.per_token[batch["loss_mask"]], tensor(*expected), rtol=1e-12, atol=1e-12)
    assert not loss.per_token[~batch["loss_mask"]].any()
    assert (loss.clipped_tokens.item() > 0) == (name != "reinforce")


@pytest.mark.parametrize("correction", ["tis", "icepop", "mis"])
def test_importance_weights_equal_the_formula(correction: str) -> None:
    batch = random_batch(500, seed=2)
    found = importance_weights(correction, batch, low=0.5, high=2.0)
    expected = reference.importance_weights(correction, reference_tokens(batch), 0.5, 2.0)
    torch.testing.assert_close(found[batch["loss_mask"]], tensor(*expected), rtol=1e-12, atol=1e-12)
    assert (found[~batch["loss_mask"]] == 1).all()


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_kl_equals_the_formula_in_loss_and_reward(estimator: str) -> None:
    batch = random_batch(200, seed=3)
    found = kl(estimator, batch["logprobs"], batch["ref_logprobs"], batch["loss_mask"])
    expected = [reference.kl_to_reference(estimator, token) for token in reference_tokens(batch)]
    torch.testing.assert_close(found[batch["loss_mask"]], tensor(*expected), rtol=1e-10, atol=1e-12)
    in_reward = kl_of_arrays(
        KL_ESTIMATORS[estimator],
        old_logprobs_M=batch["logprobs"].float().numpy(),
        ref_logprobs_M=batch["ref_logprobs"].float().numpy(),
        rollout_logprobs_M=batch["rollout_logprobs"].float().numpy(),
        mask_M=batch["loss_mask"].numpy(),
        sequences_M=batch["sequences"].numpy(),
    )
    assert not in_reward[~batch["loss_mask"].numpy()].any()
    np.testing.assert_allclose(in_reward[batch["loss_mask"].numpy()], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_aggregations_equal_the_formula(aggregation: str) -> None:
    batch = random_batch(300, seed=4)
    tokens = reference_tokens(batch)
    losses = clipped(batch).per_token
    count = int(batch["sequences"].max()) + 1
    sampled = torch.bincount(batch["sequences"][batch["loss_mask"]], minlength=count)
    weights = torch.from_numpy(trajectory_weights(aggregation, sampled.numpy(), 77))
    found = (weights[batch["sequences"]] * losses).sum()
    expected = reference.aggregate(
        aggregation, [token.sequence for token in tokens], losses[batch["loss_mask"]].tolist(), 77
    )
    assert found.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("clip", [None, 0.2])
def test_value_loss_equals_the_formula(clip: float | None) -> None:
    batch = random_batch(200, seed=5)
    names = ("logprobs", "old_logprobs", "advantages")
    loss = clipped_value_loss(*(batch[name] for name in names), batch["loss_mask"], clip=clip)
    columns = [batch[name][batch["loss_mask"]].tolist() for name in names]
    expected = [reference.value_loss(*row, clip) for row in zip(*columns, strict=True)]
    torch.testing.assert_close(loss.per_token[batch["loss_mask"]], tensor(*expected))
    assert (loss.clipped_tokens.item() > 0) == (clip is not None)


# --- gradients ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["clipped", "dual", "reinforce"])
def test_gradients_by_finite_differences(name: str) -> None:
    batch = random_batch(60, seed=6)
    logprobs = batch["logprobs"].clone().requires_grad_()

    def total(values: Tensor) -> Tensor:
        return LOSSES[name](batch | {"logprobs": values}).per_token.sum() / 17

    assert torch.autograd.gradcheck(total, (logprobs,), eps=1e-6, atol=1e-8)
    (gradient,) = torch.autograd.grad(total(logprobs), logprobs)
    assert not gradient[~batch["loss_mask"]].any()
    assert gradient.any()


def test_gspo_gradient_by_finite_differences_of_its_objective() -> None:
    """The paper's objective, one ratio and one advantage for a sequence; each token's loss only has its gradient."""
    batch = random_batch(60, seed=15)
    sequences, sampled = batch["sequences"], batch["loss_mask"]
    advantage_of = torch.randn(
        int(sequences.max()) + 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )
    batch["advantages"] = advantage_of[sequences]

    def objective(values: Tensor) -> Tensor:
        total = torch.zeros((), dtype=torch.float64)
        for number, advantage in enumerate(advantage_of):
            own = (sequences == number) & sampled
            if own.any():
                ratio = (values - batch["old_logprobs"])[own].mean().exp()
                total = total - torch.minimum(ratio * advantage, ratio.clamp(0.9, 1.15) * advantage)
        return total

    logprobs = batch["logprobs"].clone().requires_grad_()
    per_token = gspo(batch | {"logprobs": logprobs}).per_token
    counts = torch.bincount(sequences[sampled], minlength=len(advantage_of)).clamp(min=1)
    loss = (per_token / counts[sequences]).sum()
    torch.testing.assert_close(loss, objective(batch["logprobs"]))
    (gradient,) = torch.autograd.grad(loss, logprobs)
    assert gradient.any()
    for index in range(60):
        step = torch.zeros(60, dtype=torch.float64)
        step[index] = 1e-6
        difference = objective(batch["logprobs"] + step) - objective(batch["logprobs"] - step)
        assert gradient[index].item() == pytest.approx(difference.item() / 2e-6, abs=1e-8)


def test_cispo_gradient_by_finite_differences_of_the_likelihood() -> None:
    """Its weights have no gradient: the differences are taken with the weights held where they are."""
    batch = random_batch(60, seed=7)
    logprobs = batch["logprobs"].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(LOSSES["cispo"](batch | {"logprobs": logprobs}).per_token.sum(), logprobs)
    weights = (batch["logprobs"] - batch["old_logprobs"]).exp().clamp(0.8, 1.28)

    def likelihood(values: Tensor) -> Tensor:
        return -(weights * batch["advantages"] * values)[batch["loss_mask"]].sum()

    for index in range(60):
        step = torch.zeros(60, dtype=torch.float64)
        step[index] = 1e-6
        difference = likelihood(batch["logprobs"] + step) - likelihood(batch["logprobs"] - step)
        assert gradient[index].item() == pytest.approx(difference.item() / 2e-6, abs=1e-7)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_kl_gradients_by_finite_differences(estimator: str) -> None:
    batch = random_batch(60, seed=8)

    def total(values: Tensor) -> Tensor:
        return kl(estimator, values, batch["ref_logprobs"], batch["loss_mask"]).sum()

    assert torch.autograd.gradcheck(total, (batch["logprobs"].clone().requires_grad_(),), eps=1e-6, atol=1e-8)


@pytest.mark.parametrize("clip", [None, 0.2])
def test_value_gradients_by_finite_differences(clip: float | None) -> None:
    batch = random_batch(60, seed=9)

    def total(values: Tensor) -> Tensor:
        return clipped_value_loss(
            values, batch["old_logprobs"], batch["advantages"], batch["loss_mask"], clip=clip
        ).per_token.sum()

    assert torch.autograd.gradcheck(total, (batch["logprobs"].clone().requires_grad_(),), eps=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", LOSSES)
def test_on_policy_every_gradient_is_the_policy_gradient(name: str) -> None:
    """With the policy that sampled, no clip changes anything. GSPO's loss has the mean over a sequence."""
    logprobs = tensor(-1.0, -2.0, -0.1).requires_grad_()
    batch = {
        "logprobs": logprobs,
        "old_logprobs": logprobs.detach(),
        "advantages": tensor(1.5, 1.5, 2.0),
        "loss_mask": mask(1, 1, 1),
        "sequences": whole(0, 0, 1),
    }
    loss = LOSSES[name](batch)
    loss.per_token.sum().backward()
    assert logprobs.grad is not None
    torch.testing.assert_close(logprobs.grad, -batch["advantages"])
    assert loss.approximate_kl.item() == 0


@pytest.mark.parametrize("name", LOSSES)
def test_no_advantage_no_gradient(name: str) -> None:
    batch = random_batch(60, seed=10)
    logprobs = batch["logprobs"].clone().requires_grad_()
    zero = batch | {"logprobs": logprobs, "advantages": torch.zeros(60, dtype=torch.float64)}
    LOSSES[name](zero).per_token.sum().backward()
    assert logprobs.grad is not None
    assert not logprobs.grad.any()


# --- cuts, shapes, masks ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("cuts", [(1, 2), (3, 5), (4, 11)])
def test_the_parts_add_up_to_the_whole(name: str, cuts: tuple[int, int]) -> None:
    """Loss, gradient and every statistic, for any cut between sequences into micro-batches or ranks."""
    batch = random_batch(120, seed=11)
    logprobs = batch.pop("logprobs").requires_grad_()
    sequences = batch["sequences"]

    def part(kept: Tensor) -> tuple[Tensor, ...]:
        tensors = {key: values[kept] for key, values in batch.items()} | {"logprobs": logprobs[kept]}
        tensors["sequences"] = torch.unique(tensors["sequences"], return_inverse=True)[1]
        weights = importance_weights("mis", tensors, low=0.5, high=1.5)
        loss = LOSSES[name](tensors)
        total = (weights * loss.per_token).sum() / 100
        (gradient,) = torch.autograd.grad(total, logprobs)
        return total.detach(), gradient, loss.clipped_tokens, loss.dual_clipped_tokens, loss.approximate_kl

    assert int(sequences.max()) >= 11
    assert (importance_weights("mis", batch, low=0.5, high=1.5) == 0).any()
    edges = [-1, *cuts, int(sequences.max())]
    parts = [part((sequences > low) & (sequences <= high)) for low, high in itertools.pairwise(edges)]
    for total, pieces in zip(part(sequences >= 0), zip(*parts, strict=True), strict=True):
        torch.testing.assert_close(sum(pieces), total, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_the_shape_does_not_matter(name: str) -> None:
    batch = random_batch(120, seed=12)
    flat = LOSSES[name](batch)
    rows = LOSSES[name]({key: values.view(4, 30) for key, values in batch.items()})
    torch.testing.assert_close(rows.per_token.view(-1), flat.per_token, rtol=0, atol=0)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("garbage", [float("nan"), float("inf"), float("-inf"), 1e30])
def test_masked_tokens_have_no_effect(name: str, garbage: float) -> None:
    batch = random_batch(40, seed=13)
    hidden = ~batch["loss_mask"]
    clean = LOSSES[name](batch)
    dirty = dict(batch)
    for key in ("logprobs", "old_logprobs", "advantages", "rollout_logprobs", "ref_logprobs"):
        dirty[key] = torch.where(hidden, garbage, batch[key])
    logprobs = dirty["logprobs"].requires_grad_()
    found = LOSSES[name](dirty)
    torch.testing.assert_close(found.per_token, clean.per_token, rtol=0, atol=0)
    assert found.approximate_kl == clean.approximate_kl
    distance = kl("k3", logprobs, dirty["ref_logprobs"], dirty["loss_mask"])
    value = clipped_value_loss(logprobs, dirty["old_logprobs"], dirty["advantages"], dirty["loss_mask"], clip=0.2)
    for correction in CORRECTIONS:
        weights = importance_weights(correction, dirty, low=0.5, high=2.0)
        assert (weights[hidden] == 1).all()
    (found.per_token + distance + value.per_token).sum().backward()
    assert logprobs.grad is not None
    assert not logprobs.grad[hidden].any()
    assert torch.isfinite(logprobs.grad).all()
    gap = logprob_gap(dirty["old_logprobs"], torch.zeros(40, dtype=torch.float64), dirty["loss_mask"])
    assert torch.isfinite(gap.kl)


def test_a_ratio_that_would_overflow_stays_finite() -> None:
    inputs = one_sequence(torch.tensor([0.0]), torch.tensor([-1e4]), torch.tensor([-1.0]), mask(1))
    loss = clipped_policy_loss(inputs, clip_low=0.2, clip_high=0.2)
    assert loss.per_token.item() == pytest.approx(math.exp(20.0))


@pytest.mark.parametrize("dual_clip", [1.0, 0.5])
def test_a_dual_clip_that_would_cut_the_ordinary_loss_is_refused(dual_clip: float) -> None:
    with pytest.raises(ValueError, match="dual_clip"):
        clipped(random_batch(3, seed=14), dual_clip=dual_clip)
