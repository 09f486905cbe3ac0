"""Group advantages worked out by hand."""

import itertools
import math

import numpy as np
import pytest

from torl.components.algorithms.reward_advantages import group_advantages

# Two groups, interleaved: a = (1, -1, -1, -1), mean -1/2, unbiased variance (9/4 + 3/4) / 3 = 1; b = (1, 0).
REWARDS = [1.0, 1.0, -1.0, -1.0, 0.0, -1.0]
GROUPS = ["3/a", "3/b", "3/a", "3/a", "3/b", "3/a"]


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        ("grpo", [1.5, 1 / math.sqrt(2), -0.5, -0.5, -1 / math.sqrt(2), -0.5]),
        ("dr_grpo", [1.5, 0.5, -0.5, -0.5, -0.5, -0.5]),
        ("rloo", [2.0, 1.0, -2 / 3, -2 / 3, -1.0, -2 / 3]),
    ],
)
def test_two_groups(estimator, expected) -> None:
    np.testing.assert_allclose(group_advantages(estimator, REWARDS, GROUPS), expected, rtol=3e-6)


def test_epsilon_is_added_to_the_deviation() -> None:
    # Rewards 0 and 2e-6: deviation sqrt(2) * 1e-6, so the epsilon takes a large, known share.
    expected = 1e-6 / (math.sqrt(2) * 1e-6 + 1e-6)
    np.testing.assert_allclose(group_advantages("grpo", [0.0, 2e-6], [0, 0]), [-expected, expected], rtol=1e-6)


@pytest.mark.parametrize("estimator", ["grpo", "dr_grpo", "rloo"])
def test_a_group_of_one_takes_mean_zero_and_deviation_one(estimator) -> None:
    np.testing.assert_allclose(group_advantages(estimator, [-0.5, 1.0], ["a", "b"]), [-0.5, 1.0], rtol=2e-6)


@pytest.mark.parametrize("estimator", ["grpo", "dr_grpo", "rloo"])
def test_sums_that_cancel_do_not_depend_on_the_order(estimator) -> None:
    rewards = np.array([1e16, 1.0, -1e16, 3.0])  # added up from left to right: 3 or 4 or 0, by their order
    first = group_advantages(estimator, rewards, [0] * 4)
    for order in itertools.permutations(range(4)):
        assert group_advantages(estimator, rewards[list(order)], [0] * 4).tobytes() == first[list(order)].tobytes()


def test_no_trajectories() -> None:
    assert group_advantages("grpo", [], []).shape == (0,)
