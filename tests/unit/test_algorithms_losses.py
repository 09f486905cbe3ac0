"""Policy losses: values worked out by hand, gradients by finite differences, sums that do not depend on the cut."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from reference import clipped_token_loss
from torl.algorithms.losses import (
    clipped_policy_loss,
    logprob_gap,
    token_mean,
    truncated_importance_weights,
)

LOG2 = math.log(2.0)


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def mask(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.bool)


def random_batch(tokens: int, seed: int) -> dict[str, Tensor]:
    """Aligned tensors in float64, with ratios on both sides of every clip."""
    generator = torch.Generator().manual_seed(seed)
    old_logprobs = -3 * torch.rand(tokens, generator=generator, dtype=torch.float64)
    return {
        "logprobs": old_logprobs + torch.randn(tokens, generator=generator, dtype=torch.float64),
        "old_logprobs": old_logprobs,
        "advantages": torch.randn(tokens, generator=generator, dtype=torch.float64),
        "loss_mask": torch.rand(tokens, generator=generator) < 0.7,
    }


def test_the_clip_by_hand() -> None:
    # Ratios 2, 2, 1/2, 1/2, 1 with advantages of both signs; clip to [0.8, 1.28].
    loss = clipped_policy_loss(
        tensor(LOG2, LOG2, -LOG2, -LOG2, 0.0),
        torch.zeros(5, dtype=torch.float64),
        tensor(1.0, -1.0, 1.0, -1.0, 3.0),
        mask(1, 1, 1, 1, 1),
        clip_low=0.2,
        clip_high=0.28,
    )
    # -min(2, 1.28); -min(-2, -1.28); -min(.5, .8); -min(-.5, -.8); -3
    torch.testing.assert_close(loss.per_token, tensor(-1.28, 2.0, -0.5, 0.8, -3.0))
    assert loss.clipped_tokens.item() == 2
    assert loss.dual_clipped_tokens.item() == 0
    # k3 of x = log 2 twice (2 - log 2 - 1) and of -log 2 twice (1/2 + log 2 - 1)
    assert loss.approximate_kl.item() == pytest.approx(2 * (1 - LOG2) + 2 * (LOG2 - 0.5))


def test_the_dual_clip_by_hand() -> None:
    # Ratio 8: for A = -2 the loss 16 is cut to 3 * 2; for A = 2 the upper clip holds as before.
    loss = clipped_policy_loss(
        tensor(3 * LOG2, 3 * LOG2),
        tensor(0.0, 0.0),
        tensor(-2.0, 2.0),
        mask(1, 1),
        clip_low=0.2,
        clip_high=0.2,
        dual_clip=3.0,
    )
    torch.testing.assert_close(loss.per_token, tensor(6.0, -2.4))
    assert (loss.clipped_tokens.item(), loss.dual_clipped_tokens.item()) == (1, 1)


@pytest.mark.parametrize("dual_clip", [None, 1.5])
def test_each_token_equals_the_formula(dual_clip: float | None) -> None:
    batch = random_batch(500, seed=1)
    weights = torch.rand(500, dtype=torch.float64)
    loss = clipped_policy_loss(**batch, clip_low=0.2, clip_high=0.28, dual_clip=dual_clip, importance_weights=weights)
    for index in range(500):
        expected = 0.0
        if batch["loss_mask"][index]:
            expected = clipped_token_loss(
                batch["logprobs"][index].item(),
                batch["old_logprobs"][index].item(),
                batch["advantages"][index].item(),
                0.2,
                0.28,
                dual_clip,
                weights[index].item(),
            )
        assert loss.per_token[index].item() == pytest.approx(expected, abs=1e-12)
    assert loss.clipped_tokens.item() > 0


@pytest.mark.parametrize("dual_clip", [None, 1.5])
def test_gradients_by_finite_differences(dual_clip: float | None) -> None:
    batch = random_batch(60, seed=2)
    logprobs = batch.pop("logprobs").requires_grad_()
    weights = torch.rand(60, dtype=torch.float64)

    def total(values: Tensor) -> Tensor:
        loss = clipped_policy_loss(
            values, **batch, clip_low=0.2, clip_high=0.28, dual_clip=dual_clip, importance_weights=weights
        )
        return token_mean(loss.per_token, 17)

    assert torch.autograd.gradcheck(total, (logprobs,), eps=1e-6, atol=1e-8)
    (gradient,) = torch.autograd.grad(total(logprobs), logprobs)
    assert not gradient[~batch["loss_mask"]].any()
    assert gradient.any()


def test_on_policy_the_gradient_is_the_policy_gradient() -> None:
    """At ratio 1 the loss is -A and its gradient -A: the clip takes nothing away."""
    logprobs = tensor(-1.0, -2.0, -0.1).requires_grad_()
    advantages = tensor(1.5, -0.5, 2.0)
    loss = clipped_policy_loss(logprobs, logprobs.detach(), advantages, mask(1, 1, 1), clip_low=0.2, clip_high=0.2)
    loss.per_token.sum().backward()
    assert logprobs.grad is not None
    torch.testing.assert_close(logprobs.grad, -advantages)
    torch.testing.assert_close(loss.per_token.detach(), -advantages)
    assert loss.approximate_kl.item() == 0


@pytest.mark.parametrize("cuts", [(1, 2), (7, 50), (99, 100), (33, 66)])
def test_the_parts_add_up_to_the_whole(cuts: tuple[int, int]) -> None:
    """Loss, gradient and every statistic, for any cut into micro-batches or ranks."""
    batch = random_batch(120, seed=3)
    sampled = int(batch["loss_mask"].sum())
    logprobs = batch.pop("logprobs").requires_grad_()

    def part(window: slice) -> tuple[Tensor, ...]:
        tensors = {name: values[window] for name, values in batch.items()}
        loss = clipped_policy_loss(logprobs[window], **tensors, clip_low=0.2, clip_high=0.28, dual_clip=1.5)
        mean = token_mean(loss.per_token, sampled)
        (gradient,) = torch.autograd.grad(mean, logprobs)
        return mean.detach(), gradient, loss.clipped_tokens, loss.dual_clipped_tokens, loss.approximate_kl

    whole = part(slice(None))
    edges = [0, *cuts, 120]
    parts = [part(slice(start, stop)) for start, stop in itertools.pairwise(edges)]
    for total, pieces in zip(whole, zip(*parts, strict=True), strict=True):
        torch.testing.assert_close(sum(pieces), total, rtol=1e-12, atol=1e-12)


def test_the_shape_does_not_matter() -> None:
    batch = random_batch(120, seed=4)
    flat = clipped_policy_loss(**batch, clip_low=0.2, clip_high=0.2)
    rows = clipped_policy_loss(
        **{name: values.view(4, 30) for name, values in batch.items()}, clip_low=0.2, clip_high=0.2
    )
    torch.testing.assert_close(rows.per_token.view(-1), flat.per_token, rtol=0, atol=0)


@pytest.mark.parametrize("garbage", [float("nan"), float("inf"), float("-inf"), 1e30])
def test_what_the_mask_hides_never_matters(garbage: float) -> None:
    batch = random_batch(40, seed=5)
    hidden = ~batch["loss_mask"]
    clean = clipped_policy_loss(**batch, clip_low=0.2, clip_high=0.2)
    for name in ("logprobs", "old_logprobs", "advantages"):
        batch[name] = torch.where(hidden, garbage, batch[name])
    logprobs = batch.pop("logprobs").requires_grad_()
    dirty = clipped_policy_loss(logprobs, **batch, clip_low=0.2, clip_high=0.2)
    torch.testing.assert_close(dirty.per_token, clean.per_token, rtol=0, atol=0)
    assert dirty.approximate_kl == clean.approximate_kl
    dirty.per_token.sum().backward()
    assert logprobs.grad is not None
    assert not logprobs.grad[hidden].any()
    assert torch.isfinite(logprobs.grad).all()
    gap = logprob_gap(batch["old_logprobs"], torch.zeros(40, dtype=torch.float64), batch["loss_mask"])
    assert torch.isfinite(gap.kl)


def test_a_ratio_that_would_overflow_stays_finite() -> None:
    loss = clipped_policy_loss(
        torch.tensor([0.0]), torch.tensor([-1e4]), torch.tensor([-1.0]), mask(1), clip_low=0.2, clip_high=0.2
    )
    assert loss.per_token.item() == pytest.approx(math.exp(20.0))


def test_token_mean() -> None:
    assert token_mean(tensor(1.0, 0.0, 2.0), 6).item() == 0.5
    with pytest.raises(ValueError, match="sampled_tokens is 0"):
        token_mean(tensor(1.0), 0)


def test_truncated_importance_weights_by_hand() -> None:
    old_logprobs = tensor(0.0, 3 * LOG2, -LOG2, 5.0).requires_grad_()
    weights = truncated_importance_weights(old_logprobs, tensor(0.0, 0.0, 0.0, 0.0), mask(1, 1, 1, 0), cap=2.0)
    torch.testing.assert_close(weights, tensor(1.0, 2.0, 0.5, 1.0))
    assert not weights.requires_grad


def test_logprob_gap_by_hand() -> None:
    gap = logprob_gap(tensor(LOG2, -LOG2, 9.0), tensor(0.0, 0.0, 0.0), mask(1, 1, 0))
    assert gap.absolute_sum.item() == pytest.approx(2 * LOG2)
    assert gap.absolute_max.item() == pytest.approx(LOG2)
    assert gap.kl.item() == pytest.approx((1 - LOG2) + (LOG2 - 0.5))
    assert logprob_gap(tensor(), tensor(), mask()).absolute_max.item() == 0


@pytest.mark.parametrize("dual_clip", [1.0, 0.5])
def test_a_dual_clip_that_would_cut_the_ordinary_loss_is_refused(dual_clip: float) -> None:
    with pytest.raises(ValueError, match="dual_clip"):
        clipped_policy_loss(**random_batch(3, seed=6), clip_low=0.2, clip_high=0.2, dual_clip=dual_clip)


def test_a_cap_must_be_positive() -> None:
    with pytest.raises(ValueError, match="cap is 0"):
        truncated_importance_weights(tensor(0.0), tensor(0.0), mask(1), cap=0.0)
