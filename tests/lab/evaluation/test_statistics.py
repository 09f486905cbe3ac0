"""The numbers of an evaluation against what they are defined as, worked out another way."""

from itertools import combinations
from math import comb

import numpy as np
import pytest

from torl_lab.evaluation.estimates import (
    AVERAGE,
    accuracy_interval,
    correlation,
    difference_interval,
    estimates,
    majority,
    majority_at_k,
    pass_at_k,
    sample_interval,
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


def solved(count: int, problems: int) -> np.ndarray:
    return np.array([1.0] * count + [0.0] * (problems - count))


@pytest.mark.parametrize(
    ("count", "problems", "expected"),
    [
        (81, 263, (0.2553, 0.3662)),
        (15, 148, (0.0624, 0.1605)),
        (0, 20, (0.0, 0.1611)),
        (1, 29, (0.0061, 0.1718)),
    ],
)
def test_the_interval_of_an_accuracy_is_the_published_one(
    count: int, problems: int, expected: tuple[float, float]
) -> None:
    """Newcombe 1998, "Two-sided confidence intervals for the single proportion", table I, method 3."""
    assert accuracy_interval(solved(count, problems)) == pytest.approx(expected, abs=5e-5)
    low, high = accuracy_interval(1 - solved(count, problems))
    assert (1 - high, 1 - low) == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize(("mean", "samples"), [(0.05, 1), (0.4, 1), (0.1, 8), (0.4, 8), (0.4, 64)])
def test_intervals_contain_the_accuracy_of_all_problems(mean: float, samples: int) -> None:
    """Problems of different difficulty, several samples for each: in 95 of 100 sets, by simulation."""
    chance = np.random.default_rng(5)
    covered = [
        low <= mean <= high
        for difficulty_P in chance.beta(mean, 1 - mean, size=(1000, 40))
        for low, high in [accuracy_interval(chance.binomial(samples, difficulty_P) / samples)]
    ]
    assert 0.93 < np.mean(covered) < 0.985


@pytest.mark.parametrize(("problems", "mean"), [(10, 0.4), (40, 0.1), (40, 0.4), (300, 0.9)])
@pytest.mark.parametrize("samples", [2, 4, 16])
def test_intervals_of_a_model_contain_its_accuracy_on_these_problems(problems: int, mean: float, samples: int) -> None:
    """Problems of different difficulty that stay the same: in 95 of 100 evaluations, by simulation."""
    chance = np.random.default_rng(5)
    difficulties_P = chance.beta(mean, 1 - mean, size=(600, problems))
    found = [(chance.binomial(samples, each) / samples, each.mean()) for each in difficulties_P]
    intervals = [(sample_interval(values_P, samples), accuracy_interval(values_P), true) for values_P, true in found]
    assert 0.9 < np.mean([low <= true <= high for (low, high), _, true in intervals]) < 0.99
    assert np.mean([(narrow[1] - narrow[0]) / (wide[1] - wide[0]) for narrow, wide, _ in intervals]) < 0.75


def test_the_interval_of_a_model_is_that_of_a_stratified_mean() -> None:
    """Var = sum_i s_i^2 / (n P^2) with each problem's own variance s_i^2, in a set so large that the rest vanishes."""
    drawn_PN = np.random.default_rng(7).random((4000, 8)) < np.random.default_rng(8).random((4000, 1))
    error = 1.96 * np.sqrt((drawn_PN.var(axis=1, ddof=1) / 8).sum()) / 4000
    mean = drawn_PN.mean()
    assert sample_interval(drawn_PN.mean(axis=1), 8) == pytest.approx((mean - error, mean + error), rel=1e-3)


def test_samples_that_are_all_equal_leave_an_interval_of_a_model() -> None:
    for values_P in (np.zeros(30), np.ones(30), np.array([0.0, 1.0] * 15)):
        low, high = sample_interval(values_P, 4)
        assert 0 <= low <= values_P.mean() <= high <= 1
        assert 0.01 < high - low < 0.1


def test_several_samples_narrow_the_interval() -> None:
    """As the error of a mean, in a set so large that the normal distribution is exact."""
    values_P = np.random.default_rng(7).random(4000)
    error = 1.96 * values_P.std() / np.sqrt(4000)
    assert accuracy_interval(values_P) == pytest.approx((values_P.mean() - error, values_P.mean() + error), rel=1e-3)


def test_equal_values_leave_an_interval() -> None:
    for values_P in (np.zeros(30), np.ones(30), np.full(3, 0.5), np.zeros(1)):
        low, high = accuracy_interval(values_P)
        assert 0 <= low <= values_P[0] <= high <= 1
        assert high - low > 0.1
    for values_P in (np.zeros(30), np.full(1, -1.0)):
        low, high = difference_interval(values_P)
        assert -1 <= low <= values_P[0] <= high <= 1
        assert high - low > 0.1


def test_sets_count_the_same_and_add_their_errors() -> None:
    """The variance of a mean of two means is a quarter of the sum of their variances."""
    assert estimates({"small": np.ones(3), "large": np.zeros(500)})[AVERAGE].value == 0.5
    chance = np.random.default_rng(7)
    one, other = chance.random(500), chance.random(2000)
    error = 1.96 * np.sqrt(one.var() / 500 + other.var() / 2000) / 2
    middle = (one.mean() + other.mean()) / 2
    found = estimates({"one": one, "other": other})[AVERAGE]
    assert found.interval == pytest.approx((middle - error, middle + error), abs=error / 100)
    assert AVERAGE not in estimates({"one": one})


def test_an_average_of_unsolved_sets_can_be_zero() -> None:
    """The intervals of sets are not symmetric: twenty of them together must not leave the mean."""
    found = estimates({str(number): np.zeros(30) for number in range(20)})[AVERAGE]
    assert found.value == found.interval[0] == 0
    assert 0.01 < found.interval[1] < 0.05


@pytest.mark.parametrize(("mean", "gain", "samples"), [(0.02, 0.1, 1), (0.3, 0.0, 1), (0.3, 0.1, 8), (0.3, 0.1, 64)])
def test_intervals_contain_the_difference_on_all_problems(mean: float, gain: float, samples: int) -> None:
    """A model that solves a tenth of what the other leaves: in 95 of 100 sets, by simulation."""
    chance = np.random.default_rng(9)
    covered = []
    for difficulty_P in chance.beta(mean, 1 - mean, size=(1000, 40)):
        better_P = difficulty_P + (1 - difficulty_P) * gain
        drawn = [chance.binomial(samples, each) / samples for each in (better_P, difficulty_P)]
        low, high = difference_interval(drawn[0] - drawn[1])
        covered.append(low <= (1 - mean) * gain <= high)
    assert 0.91 < np.mean(covered) < 0.985


def test_a_paired_difference_is_surer_than_two_intervals() -> None:
    chance = np.random.default_rng(3)
    hard = chance.random(100)
    better = hard + 0.01 * chance.random(100)
    found = estimates({"one": better - hard}, difference_interval)["one"]
    assert 0 < found.interval[0] < found.value == pytest.approx((better - hard).mean())
    assert accuracy_interval(better)[0] < accuracy_interval(hard)[1]  # apart, they overlap


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
