"""The numbers of an evaluation against what they are defined as, worked out another way."""

from itertools import combinations
from math import comb

import numpy as np
import pytest

from torl.apps.evaluation.estimates import (
    bootstrap,
    correlation,
    majority,
    majority_at_k,
    mean_over_sets,
    pass_at_k,
)


@pytest.mark.parametrize(("samples", "correct"), [(1, 0), (1, 1), (4, 0), (4, 1), (5, 3), (6, 6), (7, 2)])
def test_pass_at_k_is_the_share_of_all_choices_of_k_that_hold_a_correct_one(samples: int, correct: int) -> None:
    outcomes = [number < correct for number in range(samples)]
    for k in range(samples + 1):
        choices = [any(choice) for choice in combinations(outcomes, k)]
        assert pass_at_k(samples, correct, k) == pytest.approx(sum(choices) / len(choices))


def test_pass_at_k_of_many_samples_is_exact() -> None:
    """As the product of Chen et al. 2021, figure 3."""
    assert pass_at_k(200, 37, 100) == pytest.approx(1.0 - np.prod(1.0 - 100 / np.arange(200 - 37 + 1, 200 + 1)))


@pytest.mark.parametrize(("samples", "correct", "k"), [(4, 5, 1), (4, -1, 1), (4, 1, 5), (4, 1, -1)])
def test_pass_at_k_that_is_not_defined(samples: int, correct: int, k: int) -> None:
    with pytest.raises(ValueError, match="is not defined"):
        pass_at_k(samples, correct, k)


@pytest.mark.parametrize(
    ("answers", "correct", "expected"),
    [
        (["1", "1", "2"], [True, True, False], 1.0),
        (["1", "2", "2"], [True, False, False], 0.0),
        (["1", "2"], [True, False], 0.5),
        (["1/2", "0.5", "3", "3"], [True, True, False, False], 0.5),  # two spellings of the reference are one answer
        (["3", "3", "1/2", "0.5", "\\frac12"], [False, False, True, True, True], 1.0),
        (["1", None, None], [True, False, False], 1.0),  # no answer, no vote
        ([None, None], [False, False], 0.0),
        ([None, "3"], [True, False], 0.5),  # a reward that finds answers where torl's does not
        (["1", "2", "3"], [True, False, False], 1 / 3),
    ],
)
def test_the_majority(answers: list[str | None], correct: list[bool], expected: float) -> None:
    assert majority(answers, correct) == pytest.approx(expected)


def test_each_set_counts_the_same() -> None:
    assert mean_over_sets([np.ones(3), np.zeros(500)]) == 0.5


@pytest.mark.parametrize(("problems", "solved"), [(30, 13), (40, 30), (500, 411)])
def test_the_interval_of_an_accuracy_is_that_of_the_binomial_distribution(problems: int, solved: int) -> None:
    """Drawing n of n zeros and ones again makes a binomial number of ones, whose quantiles are sums."""
    values_P = np.array([1.0] * solved + [0.0] * (problems - solved))
    share = solved / problems
    cumulated = np.cumsum([comb(problems, k) * share**k * (1 - share) ** (problems - k) for k in range(problems + 1)])
    expected = [int(np.searchsorted(cumulated, level)) / problems for level in (0.025, 0.975)]
    assert bootstrap([values_P], resamples=20_000) == pytest.approx(expected, abs=1.01 / problems)


def test_sets_are_drawn_apart_from_each_other() -> None:
    """The variance of a mean of two means is a quarter of the sum of their variances."""
    chance = np.random.default_rng(7)
    one, other = chance.random(50), chance.random(200)
    error = np.sqrt(one.var() / 50 + other.var() / 200) / 2
    low, high = bootstrap([one, other])
    middle = mean_over_sets([one, other])
    assert (low, high) == pytest.approx((middle - 1.96 * error, middle + 1.96 * error), abs=error / 4)


def test_a_paired_difference_is_surer_than_two_intervals() -> None:
    chance = np.random.default_rng(3)
    hard = chance.random(100)
    better = hard + 0.01 * chance.random(100)
    low, high = bootstrap([better - hard])
    assert 0 < low < (better - hard).mean() < high
    assert bootstrap([better])[0] < bootstrap([hard])[1]  # apart, they overlap


@pytest.mark.parametrize("answers", ["aabc", "abcd", "aaab", "aabbc"])
def test_majority_at_k_is_the_mean_over_all_choices(answers: str) -> None:
    correct = [answer == "a" for answer in answers]
    for k in range(1, len(answers) + 1):
        expected = np.mean(
            [
                majority([answers[i] for i in choice], [correct[i] for i in choice])
                for choice in combinations(range(len(answers)), k)
            ]
        )
        assert majority_at_k(list(answers), correct, k) == pytest.approx(expected)
    assert majority_at_k(list(answers), correct, len(answers)) == majority(list(answers), correct)


def test_majority_at_k_of_many_samples_is_near_its_expectation() -> None:
    """With two answers, maj@k is the chance of more than k/2 correct in a draw without replacement."""
    answers, k = ["a"] * 20 + ["b"] * 12, 8
    draws = {right: comb(20, right) * comb(12, k - right) / comb(32, k) for right in range(k + 1)}
    expected = sum(chance * (1.0 if right > 4 else 0.5 if right == 4 else 0.0) for right, chance in draws.items())
    found = majority_at_k(answers, [answer == "a" for answer in answers], k)
    assert found == pytest.approx(expected, abs=0.04)  # three standard errors of a thousand draws
    assert found == majority_at_k(answers, [answer == "a" for answer in answers], k)


def test_correlation_over_problems_and_its_interval() -> None:
    """The coefficient against its definition, the coverage of the interval by simulation."""
    x_P, y_P = np.array([1.0, 2, 3, 4, 5]), np.array([2.0, 1, 4, 3, 5])
    found = correlation(x_P, y_P)
    assert found is not None
    assert found.value == pytest.approx(1 - 6 * 4 / (5 * 24))  # of ranks without ties: the squared differences are 4
    assert found.interval[0] < found.value < found.interval[1]
    assert correlation(x_P, np.ones(5)) is None
    assert correlation(x_P[:3], y_P[:3]) is None
    generator = np.random.default_rng(1)
    covered = 0
    for _ in range(300):
        pairs = generator.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]], size=60)
        each = correlation(pairs[:, 0], pairs[:, 1])
        assert each is not None
        covered += each.interval[0] <= 6 / np.pi * np.arcsin(0.25) <= each.interval[1]  # Spearman's of the normal
    assert 0.91 < covered / 300 < 0.99
