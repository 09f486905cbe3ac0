"""Laws of every registered estimator, those included that read grades, texts and log-probabilities."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from graded_inputs import TOKEN_ARRAYS, estimate, graded_inputs, groups_of
from torl.components.algorithms import ESTIMATORS
from torl.components.algorithms.advantages import EstimatorInputs

OVER_THE_STEP = {"reinforce_plus_plus", "reinforce_plus_plus_baseline", "gdpo"}
"""Estimators that whiten over all groups of the step."""
BY_REWARD = {"grpo", "dr_grpo", "rloo", "gtpo", "maxrl", "aspo", *OVER_THE_STEP}
"""Estimators without a signal where all rewards, and their parts, are equal."""
law = settings(max_examples=40, deadline=None)


def assert_equal(found: np.ndarray, expected: np.ndarray, name: str) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6, err_msg=name)


@law
@given(graded_inputs(), st.sampled_from([np.nan, np.inf, -np.inf, 1e30]))
def test_tokens_that_were_not_sampled_have_no_influence_and_no_advantage(inputs, garbage) -> None:
    noise = {each: np.where(inputs.mask_M, getattr(inputs, each), np.float32(garbage)) for each in TOKEN_ARRAYS}
    for name in ESTIMATORS:
        before = estimate(name, inputs)
        assert np.array_equal(estimate(name, replace(inputs, **noise)), before), name
        assert not before[~inputs.mask_M].any(), name


@law
@given(graded_inputs(), st.integers(0, 2**32 - 1))
def test_padding_anywhere_changes_nothing(inputs, seed) -> None:
    """Up to two more tokens that were not sampled before each token, and at the end of each response."""
    random = np.random.default_rng(seed)
    places: list[int] = []  # of the tokens of `inputs` among those of the padded inputs
    lengths: list[int] = []
    for length in inputs.lengths_N:
        steps = 1 + random.integers(0, 3, length)
        start = sum(lengths) - 1
        places += (start + np.cumsum(steps)).tolist()
        lengths.append(int(steps.sum() + random.integers(0, 3)))
    count = sum(lengths)

    def spread(values_M: np.ndarray, fill: Any) -> np.ndarray:
        found = np.full(count, fill, values_M.dtype)
        found[places] = values_M
        return found

    padded = replace(
        inputs,
        lengths_N=np.array(lengths, np.int64),
        mask_M=spread(inputs.mask_M, False),
        turns_M=spread(inputs.turns_M, -1),
        **{each: spread(getattr(inputs, each), 7.0) for each in TOKEN_ARRAYS},
    )
    for name in ESTIMATORS:
        assert_equal(estimate(name, padded), spread(estimate(name, inputs), 0.0), name)


def taken(inputs: EstimatorInputs, order: Sequence[int]) -> EstimatorInputs:
    """Some of the responses, in this order."""
    arrays = ("mask_M", "turns_M", *TOKEN_ARRAYS)
    return replace(
        inputs,
        rewards_N=inputs.rewards_N[list(order)],
        groups_N=[inputs.groups_N[index] for index in order],
        lengths_N=inputs.lengths_N[list(order)],
        members_N=[inputs.members_N[index] for index in order],
        **{name: of_responses(inputs, getattr(inputs, name), order) for name in arrays},
    )


def of_responses(inputs: EstimatorInputs, values_M: np.ndarray, order: Sequence[int]) -> np.ndarray:
    parts = np.split(values_M, np.cumsum(inputs.lengths_N)[:-1])
    return np.concatenate([parts[index] for index in order])


@law
@given(graded_inputs(), st.randoms(use_true_random=False))
def test_the_order_of_the_groups_does_not_matter(inputs, random) -> None:
    groups = groups_of(inputs)
    random.shuffle(groups)
    order = [index for indices in groups for index in indices]
    for name in ESTIMATORS:
        assert_equal(estimate(name, taken(inputs, order)), of_responses(inputs, estimate(name, inputs), order), name)


@law
@given(graded_inputs())
def test_other_groups_do_not_matter_without_whitening(inputs) -> None:
    """A step may be cut at its groups."""
    for name in ESTIMATORS.keys() - OVER_THE_STEP:
        apart = [estimate(name, taken(inputs, indices)) for indices in groups_of(inputs)]
        assert_equal(np.concatenate(apart), estimate(name, inputs), name)


def graded(inputs: EstimatorInputs, parts: Sequence[Mapping[str, float]]) -> EstimatorInputs:
    """The same responses with these parts of their rewards."""
    members = [
        replace(member, grade=replace(member.grade, parts=part, reward=sum(part.values())), reward=sum(part.values()))
        for member, part in zip(inputs.members_N, parts, strict=True)
    ]
    return replace(inputs, members_N=members, rewards_N=np.array([member.total for member in members]))


@law
@given(graded_inputs(min_members=2), st.sampled_from([0.0, 0.1, 1.0]))
def test_equal_rewards_give_exactly_zero(inputs, reward) -> None:
    """Also for `gdpo`, if each part of the reward is equal."""
    equal = graded(inputs, [{"answer": reward, "length": 0.3}] * len(inputs.members_N))
    for name in BY_REWARD:
        assert not estimate(name, equal).any(), name


@law
@given(graded_inputs(min_members=2), st.sampled_from([0.0, 0.1, 1.0]))
def test_a_part_that_is_equal_for_all_has_no_influence_on_gdpo(inputs, value) -> None:
    answers = [{"answer": member.grade.parts["answer"]} for member in inputs.members_N]
    found = estimate("gdpo", graded(inputs, [part | {"length": value} for part in answers]))
    assert np.array_equal(found, estimate("gdpo", graded(inputs, answers)))


@law
@given(graded_inputs(), st.integers(0, 2**32 - 1))
def test_responses_without_sampled_tokens_and_groups_of_one_have_finite_advantages(inputs, seed) -> None:
    hidden_N = np.random.default_rng(seed).random(len(inputs.lengths_N)) < 0.5
    hidden_M = np.repeat(hidden_N, inputs.lengths_N)
    some = replace(inputs, mask_M=inputs.mask_M & ~hidden_M, turns_M=np.where(hidden_M, -1, inputs.turns_M))
    nothing = replace(some, mask_M=np.zeros_like(inputs.mask_M), turns_M=np.full_like(inputs.turns_M, -1))
    alone = replace(inputs, groups_N=list(range(len(inputs.groups_N))))
    for name in ESTIMATORS:
        for given_inputs in (some, alone):
            assert np.isfinite(estimate(name, given_inputs)).all(), name
        assert not estimate(name, some)[hidden_M].any(), name
        assert not estimate(name, nothing).any(), name
