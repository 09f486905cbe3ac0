"""Token advantages on ragged rows with observations: the formulas written out, and their laws."""

from dataclasses import replace
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from ragged import RaggedBatch, ragged_batches
from torl import _core
from torl.base.options import options_of
from torl.components.algorithms import ESTIMATORS
from torl.components.algorithms.advantages import TokenAdvantages

NEEDS_CRITIC = "ppo"
BY_TURN = "gtpo"
# The laws of the others, which read more than rewards and values, are in test_algorithms_estimator_laws.py.
OF_REWARDS = ["grpo", "dr_grpo", "rloo", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "ppo", "gtpo"]
estimators = st.sampled_from(OF_REWARDS)
discounts = st.sampled_from([1.0, 0.99, 0.5, 0.0])


Rows: TypeAlias = list[list[float | None]]


class Expected(NamedTuple):
    """Results of the naive references on every token, and how far rounding may lead away from them."""

    values: npt.NDArray[np.float64]
    atol: float

    def check(self, found: npt.NDArray[np.float32]) -> None:
        np.testing.assert_allclose(found, self.values, rtol=2e-6, atol=self.atol)


def compute(estimator: str, batch: RaggedBatch, *, token_rewards: bool = True, **options: float) -> TokenAdvantages:
    """The estimator with those of the options that it has."""
    function = ESTIMATORS[estimator]
    own = {name: value for name, value in options.items() if name in options_of(function, 1).model_fields}
    rewarded = batch.paid if token_rewards else replace(batch.paid, token_rewards_M=None)
    return function(rewarded if estimator == NEEDS_CRITIC else replace(rewarded, values_M=None), **own)


def expected(estimator: str, batch: RaggedBatch, discount: float, gae_lambda: float) -> Expected:
    """The estimators composed from the naive references."""
    token_rewards, values = batch.rows(batch.token_rewards), batch.rows(batch.values)
    rewards = list(batch.rewards)
    if estimator in ("grpo", "dr_grpo", "rloo"):
        for index, (extra, mask) in enumerate(zip(token_rewards, batch.masks, strict=True)):
            rewards[index] += sum(value for value, sampled in zip(extra, mask, strict=True) if sampled)
        advantages = reference.group_advantages(estimator, rewards, batch.groups)
        return as_they_are(spread(advantages, batch))
    if estimator == BY_TURN:
        return by_turn(batch, [turn_sums(*row) for row in zip(token_rewards, batch.masks, strict=True)], discount)
    if estimator == NEEDS_CRITIC:
        rows = zip(rewards, token_rewards, values, batch.masks, strict=True)
        return as_they_are([reference.generalized_advantages(*row, discount, gae_lambda) for row in rows])
    if estimator == "reinforce_plus_plus_baseline":
        rewards = reference.group_advantages("dr_grpo", rewards, batch.groups)
    rows = zip(rewards, token_rewards, batch.masks, strict=True)
    return whitened([reference.discounted_returns(*row, discount) for row in rows])


def by_turn(batch: RaggedBatch, of_turns: list[list[float]], discount: float, baseline: str = "group") -> Expected:
    """Returns that nearly agree are divided by next to nothing, and so is their rounding."""
    rows = reference.turn_return_advantages(batch.rewards, of_turns, batch.groups, batch.masks, discount, baseline)
    return Expected(flat(rows), 2e-6)


def turn_sums(token_rewards: list[float], mask: list[bool]) -> list[float]:
    """Rewards of the tokens of each run of sampled ones."""
    sums: list[float] = []
    for place, sampled in enumerate(mask):
        if sampled:
            sums += [0.0] if place == 0 or not mask[place - 1] else []
            sums[-1] += token_rewards[place]
    return sums


def spread(advantages: list[float], batch: RaggedBatch) -> Rows:
    rows = zip(advantages, batch.masks, strict=True)
    return [[value if sampled else None for sampled in mask] for value, mask in rows]


def as_they_are(rows: Rows) -> Expected:
    return Expected(flat(rows), 2e-6)


def whitened(returns: Rows) -> Expected:
    """Whitening divides the float32 rounding of returns by their deviation, which is next to nothing if they agree."""
    values = np.array([value for row in returns for value in row if value is not None])
    deviation = np.sqrt((values.var(ddof=1) if len(values) > 1 else 0) + 1e-8)
    return Expected(flat(reference.whiten(returns)), 2e-6 + 2**-22 * np.abs(values).max(initial=0) / deviation)


def starts_of(batch: RaggedBatch) -> list[tuple[int, list[bool]]]:
    """The index of the first token of each trajectory, and its mask."""
    return [(int(stop) - len(mask), mask) for stop, mask in zip(np.cumsum(batch.lengths), batch.masks, strict=True)]


def turn_ends(mask: list[bool]) -> list[int]:
    """The last token of each run of sampled ones."""
    return [place for place, sampled in enumerate(mask) if sampled and not (mask[place + 1 : place + 2] or [False])[0]]


@st.composite
def turns_paid(draw: st.DrawFn) -> tuple[RaggedBatch, list[list[float]]]:
    """A batch whose token rewards are those of its turns, and these by trajectory."""
    batch = draw(ragged_batches())
    of_turns = [[draw(st.sampled_from([-1.0, -0.25, 0.0, 0.5])) for _ in turn_ends(mask)] for mask in batch.masks]
    token_rewards = np.zeros_like(batch.token_rewards)
    for (start, mask), rewards in zip(starts_of(batch), of_turns, strict=True):
        for place, reward in zip(turn_ends(mask), rewards, strict=True):
            token_rewards[start + place] = reward
    return replace(batch, token_rewards=token_rewards), of_turns


def flat(rows: Rows) -> npt.NDArray[np.float64]:
    return np.array([0.0 if value is None else value for row in rows for value in row])


@settings(max_examples=500)
@given(estimators, ragged_batches(), discounts, st.sampled_from([1.0, 0.95, 0.0]))
def test_the_formulas(estimator, batch, discount, gae_lambda) -> None:
    found = compute(estimator, batch, discount=discount, gae_lambda=gae_lambda)
    again = expected(estimator, batch, discount, gae_lambda)
    assert found.advantages_M.dtype == np.float32
    again.check(found.advantages_M)
    assert (found.returns_M is not None) == (estimator == NEEDS_CRITIC)
    if found.returns_M is not None:
        np.testing.assert_allclose(
            found.returns_M, np.where(batch.mask, again.values + batch.values, 0), rtol=2e-6, atol=2e-6
        )


@settings(max_examples=200)
@given(estimators, ragged_batches(), discounts)
def test_the_formulas_without_token_rewards(estimator, batch, discount) -> None:
    """The common case has a separate path, which never looks at single tokens unless it must."""
    found = compute(estimator, batch, discount=discount, gae_lambda=0.9, token_rewards=False)
    without = replace(batch, token_rewards=np.zeros_like(batch.token_rewards))
    expected(estimator, without, discount, 0.9).check(found.advantages_M)


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
    advantages_M = compute("ppo", batch).advantages_M
    raw = advantages_M[batch.mask].astype(np.float64)
    found = _core.whiten(advantages_M, batch.lengths, batch.mask)[batch.mask].astype(np.float64)
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
    before = compute(estimator, batch, discount=discount, token_rewards=False).advantages_M
    after = compute(estimator, shuffled, discount=discount, token_rewards=False).advantages_M
    assert after.tobytes() == permuted(before).tobytes()


@given(estimators, ragged_batches(), st.sampled_from([float("nan"), float("inf"), 1e30]))
def test_tokens_that_were_not_sampled_have_no_effect(estimator, batch, garbage) -> None:
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
        batch.turn_numbers[kept].tolist(),
    )
    whole = compute(estimator, batch, discount=discount, gae_lambda=0.9).advantages_M
    bare = compute(estimator, compressed, discount=discount, gae_lambda=0.9).advantages_M
    np.testing.assert_allclose(whole[kept], bare, rtol=1e-6, atol=1e-6)


@given(
    st.sampled_from([name for name in OF_REWARDS if name != NEEDS_CRITIC]), ragged_batches(), st.floats(-2, 2, width=32)
)
def test_equal_rewards_give_exactly_zero(estimator, batch, reward) -> None:
    if estimator == "reinforce_plus_plus_baseline" and len(set(batch.groups)) > 1:
        batch = RaggedBatch(batch.rewards, [0] * len(batch.groups), batch.masks, batch.token_rewards, batch.values)
    groups = [0] * len(batch.groups)
    equal = RaggedBatch([reward] * len(groups), groups, batch.masks, batch.token_rewards, batch.values)
    if len(groups) != 1:
        assert not compute(estimator, equal, token_rewards=False).advantages_M.any()


@given(estimators, turns_paid(), discounts, st.sampled_from([1.0, 0.95, 0.0]))
def test_rewards_of_turns(estimator, paid, discount, gae_lambda) -> None:
    """Each turn's reward arrives at its last token: under every estimator the sum that the naive reference computes."""
    batch, of_turns = paid
    found = compute(estimator, batch, discount=discount, gae_lambda=gae_lambda).advantages_M
    rewards = list(zip(batch.rewards, of_turns, strict=True))
    if estimator in ("grpo", "dr_grpo", "rloo"):
        totals = [reward + sum(turns) for reward, turns in rewards]
        again = as_they_are(spread(reference.group_advantages(estimator, totals, batch.groups), batch))
    elif estimator == BY_TURN:
        again = by_turn(batch, of_turns, discount)
    elif estimator == NEEDS_CRITIC:
        rows = zip(rewards, batch.rows(batch.values), batch.masks, strict=True)
        again = as_they_are(
            [
                reference.generalized_turn_advantages(*reward, values, mask, discount, gae_lambda)
                for reward, values, mask in rows
            ]
        )
    else:
        if estimator == "reinforce_plus_plus_baseline":  # of the rewards at the ends alone
            ends = reference.group_advantages("dr_grpo", batch.rewards, batch.groups)
            rewards = list(zip(ends, of_turns, strict=True))
        again = whitened(
            [
                reference.discounted_turn_returns(*reward, mask, discount)
                for reward, mask in zip(rewards, batch.masks, strict=True)
            ]
        )
    again.check(found)


@given(turns_paid(), discounts)
def test_turns_compared_with_those_of_their_number(paid, discount) -> None:
    batch, of_turns = paid
    found = ESTIMATORS[BY_TURN](batch.paid, discount=discount, baseline="turn").advantages_M
    by_turn(batch, of_turns, discount, "turn").check(found)


@given(ragged_batches())
def test_a_response_of_one_turn_has_the_advantage_that_grpo_gives_it(batch) -> None:
    """To the bit, for any discount: there is nothing to discount over."""
    one = replace(batch, turns=np.where(batch.mask, 0, -1).tolist())
    for token_rewards in (True, False):
        found = compute(BY_TURN, one, discount=0.5, token_rewards=token_rewards)
        again = compute("grpo", batch, token_rewards=token_rewards)
        np.testing.assert_array_equal(found.advantages_M, again.advantages_M)


@given(estimators, ragged_batches(min_sampled=1), st.sampled_from([1.0, 0.9]))
def test_a_reward_of_the_last_turn_is_a_reward_at_the_end(estimator, batch, discount) -> None:
    """A reward for the last token of the last turn, or for the trajectory: the same without a baseline."""
    if estimator == "reinforce_plus_plus_baseline":
        batch = replace(batch, groups=list(range(len(batch.groups))))  # groups of one have no baseline
    lasts = [start + max(place for place, sampled in enumerate(mask) if sampled) for start, mask in starts_of(batch)]
    token_rewards = np.zeros_like(batch.token_rewards)
    token_rewards[lasts] = np.array(batch.rewards, np.float32)
    by_turn = replace(batch, rewards=[0.0] * len(batch.rewards), token_rewards=token_rewards)
    at_end = replace(batch, token_rewards=np.zeros_like(batch.token_rewards))
    found = compute(estimator, by_turn, discount=discount, gae_lambda=0.9).advantages_M
    again = compute(estimator, at_end, discount=discount, gae_lambda=0.9).advantages_M
    np.testing.assert_array_equal(found, again)


def test_refusals() -> None:
    batch = RaggedBatch([1.0], [0], [[True, True]], np.zeros(2, np.float32), np.zeros(2, np.float32))
    with pytest.raises(ValueError, match="'ppo' requires the values of a critic"):
        ESTIMATORS["ppo"](replace(batch.paid, values_M=None))
    with pytest.raises(ValueError, match="1 token rewards for 2 tokens"):
        ESTIMATORS["reinforce_plus_plus"](replace(batch.paid, token_rewards_M=np.zeros(1, np.float32)))
    with pytest.raises(ValueError, match="3 values for 2 tokens"):
        compute("grpo", replace(batch, token_rewards=np.zeros(3, np.float32)))
    with pytest.raises(ValueError, match="'gtpo' requires the turns"):
        ESTIMATORS["gtpo"](replace(batch.paid, turns_M=None))
    with pytest.raises(ValueError, match="turns of 1 tokens for 2"):
        ESTIMATORS["gtpo"](replace(batch.paid, turns_M=np.zeros(1, np.int32)))
    bare = replace(batch.paid, token_rewards_M=None)
    with pytest.raises(ValueError, match="a mask of 2"):
        ESTIMATORS["grpo"](replace(bare, lengths_N=np.array([3])))
    with pytest.raises(ValueError, match="reward 0 is NaN"):
        ESTIMATORS["reinforce_plus_plus"](replace(bare, rewards_N=np.array([float("nan")])))
