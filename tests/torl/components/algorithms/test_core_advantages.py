"""Group advantages equal the papers' formulas written out, and keep their laws."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from builders import scored, scored_group
from torl import _core
from torl.components.algorithms.reward_advantages import group_advantages

estimators = st.sampled_from(["grpo", "dr_grpo", "rloo"])
rewards = st.one_of(st.sampled_from([-1.0, -0.5, 0.0, 1.0]), st.floats(-100, 100, allow_subnormal=False))
members = st.lists(st.tuples(rewards, st.integers(0, 4)), max_size=40)


@settings(max_examples=500)
@given(estimators, members)
def test_the_formulas(estimator, trajectories) -> None:
    values, groups = [reward for reward, _ in trajectories], [group for _, group in trajectories]
    advantages = group_advantages(estimator, values, groups)
    assert advantages.dtype == np.float32
    assert advantages.shape == (len(values),)
    # float32 results; if rewards nearly agree, 1e-6 next to a tiny deviation magnifies the rounding of the mean.
    np.testing.assert_allclose(advantages, reference.group_advantages(estimator, values, groups), rtol=1e-6, atol=1e-7)


@given(estimators, members, st.randoms(use_true_random=False))
def test_the_order_changes_no_bit(estimator, trajectories, random) -> None:
    before = group_advantages(estimator, [r for r, _ in trajectories], [g for _, g in trajectories])
    order = list(range(len(trajectories)))
    random.shuffle(order)
    shuffled = [trajectories[index] for index in order]
    after = group_advantages(estimator, [r for r, _ in shuffled], [g for _, g in shuffled])
    assert after.tobytes() == before[order].tobytes()


@given(estimators, st.lists(st.tuples(rewards, st.integers(0, 4)), min_size=1, max_size=40))
def test_a_group_sums_to_zero(estimator, trajectories) -> None:
    values = np.array([reward for reward, _ in trajectories])
    groups = np.array([group for _, group in trajectories])
    advantages = group_advantages(estimator, values, groups.tolist()).astype(np.float64)
    for group in np.unique(groups):
        inside = advantages[groups == group]
        if len(inside) > 1:
            assert abs(inside.sum()) <= 1e-6 * np.abs(inside).sum() + 1e-12


@given(estimators, rewards, st.integers(2, 20))
def test_equal_rewards_give_exactly_zero(estimator, reward, size) -> None:
    assert not group_advantages(estimator, [reward] * size, ["step/problem"] * size).any()


@given(estimators, members)
def test_a_uniform_group_has_no_advantage(estimator, trajectories) -> None:
    """Selection may leave out only groups from which nothing would be learned."""
    values, groups = [reward for reward, _ in trajectories], [group for _, group in trajectories]
    advantages = group_advantages(estimator, values, groups)
    for name in set(groups):
        own = [value for value, group in trajectories if group == name]
        uniform = scored_group(*(scored(reward=value) for value in own)).has_zero_variance
        assert uniform == (len(own) > 1 and len(set(own)) == 1)
        if uniform:
            assert not advantages[[group == name for group in groups]].any()


def test_refusals() -> None:
    with pytest.raises(ValueError, match="grpo, dr_grpo, rloo"):
        group_advantages("ppo", [1.0], [0])
    with pytest.raises(ValueError, match="2 rewards with 1 group"):
        group_advantages("grpo", [1.0, 2.0], [0])
    with pytest.raises(ValueError, match="reward 1 is NaN"):
        group_advantages("grpo", [1.0, float("nan")], [0, 0])
    with pytest.raises(ValueError, match="trajectory 0 is NaN"):
        group_advantages("grpo", [1e308, -1e308], [0, 0])
    with pytest.raises(ValueError, match="trajectory 0 is NaN"):
        group_advantages("grpo", [1e200, -1e200], [0, 0])  # only their squares overflow


def test_arrays_that_are_not_contiguous_are_named() -> None:
    lengths, mask = np.array([2, 1]), np.ones(3, bool)
    apart, doubles = np.arange(6, dtype=np.float32)[::2], np.arange(4.0)[::2]
    for call in (
        lambda: _core.whiten(apart, lengths, mask),
        lambda: _core.row_sums(apart, lengths, mask),
        lambda: _core.whiten_rows(doubles, lengths, mask),
        lambda: _core.broadcast_to_tokens(doubles, lengths, mask),
    ):
        with pytest.raises(ValueError, match="values must be contiguous"):
            call()
    values = np.zeros(3, np.float32)
    with pytest.raises(ValueError, match="lengths must be contiguous"):
        _core.whiten(values, np.array([2, 0, 1, 0])[::2], mask)
    with pytest.raises(ValueError, match="mask must be contiguous"):
        _core.whiten(values, lengths, np.ones(6, bool)[::2])
    with pytest.raises(ValueError, match="token_rewards must be contiguous"):
        _core.discounted_returns(np.zeros(2), apart, lengths, mask, 1.0)
