"""Exact gradients: the mean over all outcomes of a small problem is the true gradient, or differs by a known factor."""

import pytest
import torch

from benchmarks.gradient_bias import WITHOUT_GRADES, compare, mean_gradient, true_gradient


@pytest.mark.parametrize("size", [2, 3])
def test_rloo_is_unbiased(size: int) -> None:
    """Rewards are multiples of 1/2, whose means over one or two others float32 holds exactly."""
    torch.testing.assert_close(mean_gradient("rloo", size), true_gradient(), rtol=0, atol=1e-10)


@pytest.mark.parametrize("size", [2, 4])
def test_dr_grpo_is_unbiased_up_to_its_known_factor(size: int) -> None:
    """The mean includes the response itself, which shortens the gradient by (G - 1) / G."""
    found = mean_gradient("dr_grpo", size) * size / (size - 1)
    torch.testing.assert_close(found, true_gradient(), rtol=0, atol=1e-10)


def test_turn_returns_of_a_single_turn_are_those_of_grpo() -> None:
    torch.testing.assert_close(mean_gradient("gtpo", 3), mean_gradient("grpo", 3), rtol=0, atol=1e-7)


@pytest.mark.parametrize("name", sorted(set(WITHOUT_GRADES) - {"rloo", "dr_grpo"}))
def test_a_biased_estimator_points_uphill(name: str) -> None:
    """Division by a standard deviation or a mean changes the direction, but the reward still rises."""
    found = compare(mean_gradient(name, 3), true_gradient())
    assert found["cosine"] > 0.9
    assert found["error"] > 1e-6
