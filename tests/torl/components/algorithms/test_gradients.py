"""Exact gradients: the mean over all outcomes of a small problem is the true gradient, or differs by a known factor."""

import pytest
import torch

from benchmarks.learner.gradient_bias import (
    DISTANCES,
    LOSSES,
    WITHOUT_GRADES,
    compare,
    loss_table,
    mean_gradient,
    older_logits,
    start,
    token_logprobs,
    true_gradient,
)
from places import ROOT

DOCS = ROOT / "docs" / "evidence" / "learning.md"
RLOO = {"name": "rloo"}
CHOOSING = ("`clip_cov`", "`kl_cov`", "`high_entropy`")  # losses that treat a few tokens of the batch differently


@pytest.mark.parametrize("size", [2, 3])
def test_rloo_is_unbiased(size: int) -> None:
    """Rewards are multiples of 1/2, whose means over one or two others float32 holds exactly."""
    torch.testing.assert_close(mean_gradient(RLOO, size), true_gradient(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("size", [2, 4])
def test_dr_grpo_is_unbiased_up_to_its_known_factor(size: int) -> None:
    """The mean includes the response itself, which shortens the gradient by (G - 1) / G."""
    found = mean_gradient({"name": "dr_grpo"}, size) * size / (size - 1)
    torch.testing.assert_close(found, true_gradient(), rtol=0, atol=1e-10)


def test_turn_returns_of_a_single_turn_are_those_of_grpo() -> None:
    found, expected = mean_gradient({"name": "gtpo"}, 3), mean_gradient({"name": "grpo"}, 3)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize("name", sorted(set(WITHOUT_GRADES) - {"rloo", "dr_grpo"}))
def test_a_biased_estimator_points_uphill(name: str) -> None:
    """Division by a standard deviation or a mean changes the direction, but the reward still rises."""
    found = compare(mean_gradient({"name": name}, 3), true_gradient())
    assert found["cosine"] > 0.9
    assert found["error"] > 1e-6


@pytest.mark.parametrize("name", [name for name in LOSSES if name not in CHOOSING])
def test_a_loss_is_unbiased_on_sequences_of_the_current_policy(name: str) -> None:
    loss, correction = LOSSES[name]
    found = mean_gradient(RLOO, 2, loss=loss, correction=correction)
    torch.testing.assert_close(found, true_gradient(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("distance", DISTANCES)
def test_importance_weights_of_sequences_are_unbiased_on_those_of_an_older_policy(distance: float) -> None:
    """The weight is the product over the sequence, which no bound masks here. It shows what the others lack."""
    mis = {"name": "mis", "high": 100.0}
    found = mean_gradient(RLOO, 2, correction=mis, distance=distance)
    torch.testing.assert_close(found, true_gradient(), rtol=0, atol=1e-10)
    biased = mean_gradient(RLOO, 2, distance=distance)
    assert not torch.allclose(biased, true_gradient(), rtol=0, atol=1e-3)


def test_plain_policy_gradient_of_an_older_policy_by_its_formula() -> None:
    """The sum over sequences y of q(y) (r(y) - E_q r) grad log p(y), without any of the script's groups."""
    current, older = start(), older_logits(0.5)
    rewards = torch.tensor([0.0, 1.0, 0.0, 0.5], dtype=torch.float64)
    q = token_logprobs(older).sum(-1).exp()
    objective = (q * (rewards - (q * rewards).sum()) * token_logprobs(current).sum(-1)).sum()
    (expected,) = torch.autograd.grad(objective, current)
    torch.testing.assert_close(mean_gradient(RLOO, 2, distance=0.5), expected, rtol=0, atol=1e-10)


def test_table_of_losses_in_the_docs_is_that_of_the_script() -> None:
    page = DOCS.read_text(encoding="utf-8")
    for line in loss_table():
        assert line in page, line
