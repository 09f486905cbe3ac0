"""Statistics of a metric over steps, against values worked out by hand and by brute force."""

import math
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torl.run.display.series import log_fit, means_of, rank_correlation, values_of

NUMBERS = st.lists(st.integers(-5, 5), min_size=2, max_size=12)


def test_a_mean_of_metrics_is_taken_where_all_were_measured() -> None:
    rows = [
        {"step": 0, "a": 1.0, "b": 3.0},
        {"step": 1, "a": 2.0, "b": None},
        {"step": 2, "b": 0.0},
        {"step": 2, "a": 5.0},
    ]
    assert values_of(rows, "a") == ([0, 1, 2], [1.0, 2.0, 5.0])
    assert means_of(rows, ["a", "b"]) == ([0, 2], [2.0, 2.5])
    assert means_of(rows, ["a", "c"]) == ([], [])


def test_the_rank_correlation_of_a_textbook() -> None:
    """IQ and hours of television of ten people, 1 - 6 * 194 / (10 * 99): the worked example of Wikipedia's article."""
    iq = [106, 100, 86, 101, 99, 103, 97, 113, 112, 110]
    hours = [7, 27, 2, 50, 28, 29, 20, 12, 6, 17]
    assert rank_correlation(iq, hours) == pytest.approx(-29 / 165)


@settings(deadline=None)
@given(st.data(), NUMBERS)
def test_the_rank_correlation_with_ties_is_that_of_counted_ranks(data: st.DataObject, x: list[int]) -> None:
    y = data.draw(st.lists(st.integers(-5, 5), min_size=len(x), max_size=len(x)))
    ranks = [
        [sum(other < each for other in values) + (sum(other == each for other in values) + 1) / 2 for each in values]
        for values in (x, y)
    ]
    centered = [[rank - (len(x) + 1) / 2 for rank in each] for each in ranks]
    dot = [[sum(map(math.prod, zip(a, b, strict=True))) for b in centered] for a in centered]
    if dot[0][0] == 0 or dot[1][1] == 0:
        assert rank_correlation(x, y) is None
    else:
        assert rank_correlation(x, y) == pytest.approx(dot[0][1] / math.sqrt(dot[0][0] * dot[1][1]))


def test_a_logarithm_is_found_again() -> None:
    x = [0, 1, 2, 4, 8]
    fit = log_fit(x, [0.1 + 0.25 * math.log(1 + each) for each in x])
    assert fit is not None
    assert (fit.intercept, fit.slope, fit.explained) == pytest.approx((0.1, 0.25, 1.0))
    assert fit.per_doubling == pytest.approx(fit.at(7) - fit.at(3))


def test_no_other_line_is_nearer() -> None:
    x, y = [0, 1, 2, 4, 9, 9], [0.2, 0.5, 0.3, 0.9, 0.6, 0.8]
    fit = log_fit(x, y)
    assert fit is not None

    def squares(intercept: float, slope: float) -> float:
        return sum((value - intercept - slope * math.log(1 + each)) ** 2 for each, value in zip(x, y, strict=True))

    least = squares(fit.intercept, fit.slope)
    around = (-0.01, 0.0, 0.01)
    assert all(squares(fit.intercept + a, fit.slope + b) >= least for a, b in product(around, around))
    mean = sum(y) / len(y)
    assert fit.explained == pytest.approx(1 - least / sum((value - mean) ** 2 for value in y))


def test_too_little_has_no_fit() -> None:
    assert log_fit([0, 1], [0.0, 1.0]) is None
    assert log_fit([1, 1, 1], [0.0, 1.0, 2.0]) is None
    assert rank_correlation([], []) is None
