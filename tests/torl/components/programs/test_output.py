"""Outputs and results are compared as public judges compare them."""

import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from torl.components.programs.output import equal_output, equal_values

_SPACE = st.text(" \t\n\r", min_size=1, max_size=3)
_TOKENS = st.lists(st.text(st.characters(codec="ascii", exclude_categories=("C", "Z")), min_size=1), max_size=6)
_FINITE = st.floats(-1e12, 1e12)


@given(_TOKENS, st.data())
def test_white_space_does_not_count(tokens: list[str], data: st.DataObject) -> None:
    printed = "".join(token + data.draw(_SPACE) for token in tokens)
    assert equal_output(printed, " ".join(tokens) + "\n")
    assert equal_output(printed.replace("\n", "\r\n"), " ".join(tokens))


@given(st.lists(st.integers()), st.lists(st.integers()))
def test_integers_are_equal_as_numbers(printed: list[int], expected: list[int]) -> None:
    assert equal_output(" ".join(f"{n:+05d}" for n in printed), " ".join(map(str, printed)))
    assert equal_output(" ".join(map(str, printed)), " ".join(map(str, expected))) == (printed == expected)


@given(_FINITE, st.integers(6, 17))
def test_numbers_with_fewer_digits_are_equal(number: float, digits: int) -> None:
    assume("e" not in repr(number) or abs(number) < 1)
    assert equal_output(f"{number:.{digits}f}", f"{number!r}")
    assert equal_values([[number], {"a": float(f"{number:.{digits}f}")}], [[number], {"a": number}])


@given(_FINITE, st.floats(1e-12, 1.0))
def test_the_tolerance_is_relative_or_absolute(number: float, difference: float) -> None:
    other = number + difference
    exact = abs(Decimal(other) - Decimal(number)) / max(Decimal(1), abs(Decimal(other)), abs(Decimal(number)))
    assume(abs(exact - Decimal("1e-6")) > Decimal("1e-12"))
    assert equal_values(other, number) == (exact < Decimal("1e-6"))
    assert equal_output(f"{other:.17g}", f"{number:.17e}") == (exact < Decimal("1e-6"))


@pytest.mark.parametrize(
    ("printed", "expected", "is_equal"),
    [
        ("3.0", "3", True),
        ("2.9999999", "3", True),
        ("3.1", "3", False),
        ("123456789000.0", "123456789012", False),  # an approximation of an integer
        ("9007199254740992.0", "9007199254740993", False),
        ("3", "3.0", True),
        ("9" * 5_000, "9" * 5_000 + ".0", False),
        ("0" * 5_000 + "7", "7", True),
        ("-0", "0", True),
        ("1e3", "1000", True),
        ("\u0663", "3", False),  # a digit three of another script
        ("nan", "nan", True),
        ("nan", "1.0", False),
        ("inf", "1e400", False),
        ("YES", "yes", False),
        ("1 2", "12", False),
        ("", "0", False),
        ("", "\n", True),
        ("1_000", "1000", False),
        ("1 2 3", "1 2\n3", True),
        ("1e999", "9" * 400, False),
        ("1000000000.0", "1000000006", False),
        ("[0.30000000000000004, 1]", "[0.3, 1]", True),
        ("(0.30000000000000004,1)", "(0.3,1)", True),
        ("[0.4, 1]", "[0.3, 1]", False),
        ("[0.3, 01]", "[0.3, 1]", False),
        ("[0.3", "0.3", False),
        ("1:05", "1:5", False),
    ],
)
def test_outputs(printed: str, expected: str, is_equal: bool) -> None:
    assert equal_output(printed, expected) == is_equal


@pytest.mark.parametrize(
    ("result", "expected", "is_equal"),
    [
        (True, 1, True),
        (1, True, True),
        (1.0, True, False),
        (0, None, False),
        (None, None, True),
        (3.0, 3, True),
        (123456789000.0, 123456789012, False),
        (10**400, 1.0, False),
        (1e9, 1000000006, False),
        (math.nan, math.nan, True),
        (math.inf, math.inf, True),
        (math.inf, 5, False),
        ("3", 3, False),
        ("ab", ["a", "b"], False),
        ((1, 2), [1, 2], True),
        ([1, 2], [1, 2, 3], False),
        ({1: 2}, {"1": 2}, True),
        ({1: 2, "1": 2}, {"1": 2}, False),
        ({1, 2}, [1, 2], False),
        ([], {}, False),
        (object(), 3, False),
    ],
)
def test_results(result: Any, expected: Any, is_equal: bool) -> None:
    assert equal_values(result, expected) == is_equal
