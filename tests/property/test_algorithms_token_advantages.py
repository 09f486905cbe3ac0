"""Token advantages on ragged rows with observations: the formulas written out, and their laws."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from ragged import RaggedBatch, ragged_batches
from torl.algorithms.advantages import Estimator, TokenAdvantages, token_advantages

ALL: tuple[Estimator, ...] = (
    *("grpo", "dr_grpo", "rloo"),
    *("reinforce_plus_plus", "reinforce_plus_plus_baseline", "ppo"),
)
estimators = st.sampled_from(ALL)
discounts = st.sampled_from([1.0, 0.99, 0.5, 0.0])


def compute(estimator: Estimator, batch: RaggedBatch, **options: object) -> TokenAdvantages:
    settings: dict[str, object] = {"token_rewards_M": batch.token_rewards}
    if estimator == "ppo":
        settings["values_M"] = batch.values
    return token_advantages(
        estimator,
        batch.rewards,
        batch.groups,
        batch.lengths,
        batch.mask,
        **(settings | options),  # type: ignore[arg-type]
    )


def expected(estimator: Estimator, batch: RaggedBatch, discount: float, gae_lambda: float) -> list[list[float | None]]:
    """The estimators composed from the slow references."""
    token_rewards, values = batch.rows(batch.token_rewards), batch.rows(batch.values)
    rewards = list(batch.rewards)
    if estimator in ("grpo", "dr_grpo", "rloo"):
        for index, (extra, mask) in enumerate(zip(token_rewards, batch.masks, strict=True)):
            rewards[index] += sum(value for value, sampled in zip(extra, mask, strict=True) if sampled)
        advantages = reference.group_advantages(estimator, rewards, batch.groups)
        return [
            [value if sampled else None for sampled in mask]
            for value, mask in zip(advantages, batch.masks, strict=True)
        ]
    if estimator == "ppo":
        return [
            reference.generalized_advantages(*row, discount, gae_lambda)
            for row in zip(rewards, token_rewards, values, batch.masks, strict=True)
        ]
    if estimator == "reinforce_plus_plus_baseline":
        rewards = reference.group_advantages("dr_grpo", rewards, batch.groups)
    rows = zip(rewards, token_rewards, batch.masks, strict=True)
    return reference.whiten([reference.discounted_returns(*row, discount) for row in rows])


def flat(rows: list[list[float | None]]) -> npt.NDArray[np.float64]:
    return np.array([0.0 if value is None else value for row in rows for value in row])


@settings(max_examples=500)
@given(estimators, ragged_batches(), discounts, st.sampled_from([1.0, 0.95, 0.0]))
def test_the_formulas(estimator, batch, discount, gae_lambda) -> None:
    found = compute(estimator, batch, discount=discount, gae_lambda=gae_lambda)
    advantages = flat(expected(estimator, batch, discount, gae_lambda))
    assert found.advantages_M.dtype == np.float32
    # Whitening values that nearly agree divides their float32 rounding by as little as 1e-4.
    np.testing.assert_allclose(found.advantages_M, advantages, rtol=2e-6, atol=2e-5 if "plus" in estimator else 2e-6)
    assert (found.returns_M is not None) == (estimator == "ppo")
    if found.returns_M is not None:
        np.testing.assert_allclose(
            found.returns_M, np.where(batch.mask, advantages + batch.values, 0), rtol=2e-6, atol=2e-6
        )


@settings(max_examples=200)
@given(estimators, ragged_batches(), discounts)
def test_the_formulas_without_token_rewards(estimator, batch, discount) -> None:
    """The common case has a way of its own, which never looks at single tokens where it need not."""
    found = compute(estimator, batch, discount=discount, gae_lambda=0.9, token_rewards_M=None)
    without = replace(batch, token_rewards=np.zeros_like(batch.token_rewards))
    advantages = flat(expected(estimator, without, discount, 0.9))
    np.testing.assert_allclose(found.advantages_M, advantages, rtol=2e-6, atol=2e-5 if "plus" in estimator else 2e-6)


def test_the_common_case_of_reinforce_plus_plus_by_hand() -> None:
    options = {"token_rewards_M": None}
    nothing = np.zeros(4, np.float32)
    batch = RaggedBatch([1.0, -1.0], [0, 0], [[True, True, True], [True]], nothing, nothing)
    # 1, 1, 1, -1: mean 1/2, unbiased variance 1. The baseline takes the group's mean, 0, first.
    for name in ("reinforce_plus_plus", "reinforce_plus_plus_baseline"):
        found = compute(name, batch, **options).advantages_M  # type: ignore[arg-type]
        assert found.tolist() == pytest.approx([0.5, 0.5, 0.5, -1.5])
    # Discounted by half: 1/4, 1/2, 1, -1; mean 3/16.
    discounted = np.array([0.25, 0.5, 1, -1])
    found = compute("reinforce_plus_plus", batch, discount=0.5, **options).advantages_M
    assert found.tolist() == pytest.approx(((discounted - 3 / 16) / discounted.std(ddof=1)).tolist())


@given(ragged_batches(min_sampled=1, min_rows=2))
def test_normalized_advantages_have_mean_zero_and_variance_one(batch) -> None:
    raw = compute("ppo", batch).advantages_M[batch.mask].astype(np.float64)
    found = compute("ppo", batch, normalize=True).advantages_M[batch.mask].astype(np.float64)
    if raw.std() > 1e-2:
        assert abs(found.mean()) < 1e-5
        assert found.std(ddof=1) == pytest.approx(1, abs=1e-3)
    assert (np.argsort(found, kind="stable") == np.argsort(raw, kind="stable")).all()


@given(estimators, ragged_batches(), st.randoms(use_true_random=False), discounts)
def test_the_order_changes_no_bit(estimator, batch, random, discount) -> None:
    order = list(range(len(batch.masks)))
    random.shuffle(order)

    def permuted(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        parts = np.split(values, np.cumsum(batch.lengths)[:-1]) if order else []
        return np.concatenate([parts[index] for index in order]) if order else values

    shuffled = RaggedBatch(
        [batch.rewards[index] for index in order],
        [batch.groups[index] for index in order],
        [batch.masks[index] for index in order],
        permuted(batch.token_rewards),
        permuted(batch.values),
    )
    before = compute(estimator, batch, discount=discount, token_rewards_M=None).advantages_M
    after = compute(estimator, shuffled, discount=discount, token_rewards_M=None).advantages_M
    assert after.tobytes() == permuted(before).tobytes()


@given(estimators, ragged_batches(), st.sampled_from([float("nan"), float("inf"), 1e30]))
def test_what_was_not_sampled_never_matters(estimator, batch, garbage) -> None:
    clean = compute(estimator, batch, discount=0.9, gae_lambda=0.9)
    hidden = np.float32(garbage)
    dirty = RaggedBatch(
        batch.rewards,
        batch.groups,
        batch.masks,
        np.where(batch.mask, batch.token_rewards, hidden),
        np.where(batch.mask, batch.values, hidden),
    )
    found = compute(estimator, dirty, discount=0.9, gae_lambda=0.9)
    np.testing.assert_array_equal(found.advantages_M, clean.advantages_M)
    assert not found.advantages_M[~batch.mask].any()


@given(estimators, ragged_batches(), discounts)
def test_observations_may_as_well_not_be_there(estimator, batch, discount) -> None:
    """A reward reaches the tokens before an observation exactly as if the observation had not been."""
    kept = batch.mask
    compressed = RaggedBatch(
        batch.rewards,
        batch.groups,
        [[sampled for sampled in mask if sampled] for mask in batch.masks],
        batch.token_rewards[kept],
        batch.values[kept],
    )
    whole = compute(estimator, batch, discount=discount, gae_lambda=0.9).advantages_M
    bare = compute(estimator, compressed, discount=discount, gae_lambda=0.9).advantages_M
    np.testing.assert_allclose(whole[kept], bare, rtol=1e-6, atol=1e-6)


@given(st.sampled_from([name for name in ALL if name != "ppo"]), ragged_batches(), st.floats(-2, 2, width=32))
def test_equal_rewards_give_exactly_zero(estimator, batch, reward) -> None:
    if estimator == "reinforce_plus_plus_baseline" and len(set(batch.groups)) > 1:
        batch = RaggedBatch(batch.rewards, [0] * len(batch.groups), batch.masks, batch.token_rewards, batch.values)
    groups = [0] * len(batch.groups)
    equal = RaggedBatch([reward] * len(groups), groups, batch.masks, batch.token_rewards, batch.values)
    if len(groups) != 1:
        assert not compute(estimator, equal, token_rewards_M=None).advantages_M.any()


def test_refusals() -> None:
    batch = RaggedBatch([1.0], [0], [[True, True]], np.zeros(2, np.float32), np.zeros(2, np.float32))
    with pytest.raises(ValueError, match="values are for 'ppo'"):
        compute("grpo", batch, values_M=batch.values)
    with pytest.raises(ValueError, match="values are for 'ppo'"):
        compute("ppo", batch, values_M=None)
    with pytest.raises(ValueError, match="1 token rewards for 2 tokens"):
        compute("reinforce_plus_plus", batch, token_rewards_M=np.zeros(1, np.float32))
    with pytest.raises(ValueError, match="a mask of 2"):
        token_advantages("grpo", [1.0], [0], [3], batch.mask)
    with pytest.raises(ValueError, match="reward 0 is NaN"):
        token_advantages("reinforce_plus_plus", [float("nan")], [0], [2], batch.mask)
