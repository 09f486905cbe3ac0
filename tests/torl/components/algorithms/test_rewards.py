"""Transformations of rewards before advantages are computed, by hand."""

import math

import numpy as np
import pytest

from torl.components.algorithms.losses import KL_ESTIMATORS, kl_of_arrays
from torl.components.algorithms.reward_advantages import normalize_rewards


def test_normalized_rewards() -> None:
    assert normalize_rewards([0.0, 2.0]).tolist() == pytest.approx([-np.sqrt(0.5), np.sqrt(0.5)], rel=1e-5)
    assert normalize_rewards([3.0]).tolist() == [0]
    assert normalize_rewards([3.0, 3.0, 3.0]).tolist() == [0, 0, 0]


@pytest.mark.parametrize(("estimator", "far_below", "far_above"), [("k1", 20, -20), ("k2", 200, 200), ("k3", 19, None)])
def test_distances_from_the_reference_stay_within_limits(estimator, far_below, far_above) -> None:
    """The log ratio is kept within 20 on both sides: of reference to policy -100, then 100, then log 2."""
    old = np.array([0.0, -100.0, -math.log(2)], dtype=np.float32)
    reference = np.array([-100.0, 0.0, 0.0], dtype=np.float32)
    found = kl_of_arrays(
        KL_ESTIMATORS[estimator],
        old_logprobs_M=old,
        ref_logprobs_M=reference,
        rollout_logprobs_M=old,
        mask_M=np.ones(3, np.bool_),
        sequences_M=np.arange(3),
    )
    by_hand = {"k1": -math.log(2), "k2": math.log(2) ** 2 / 2, "k3": 1 - math.log(2)}[estimator]
    expected = [far_below, math.expm1(20) - 20 if far_above is None else far_above, by_hand]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
