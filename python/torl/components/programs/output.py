"""Whether the output of a program, or the result of a function, is what a test expects: as judges do.

White space between tokens does not count, lines included: the checkers of competitions read tokens. Numbers that are
not integers are equal within 1e-6, relative or absolute, in lists and tuples too. Where an integer is expected, a
number with a decimal point is equal within 1e-6, absolute: an approximation is wrong.
"""

import math
import re
from collections.abc import Mapping, Sequence, Set
from typing import Any

TOLERANCE = 1e-6
_MAX_EXACT = 2.0**53  # every integer below is a floating-point number
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_BRACKETS = re.compile(r"([\[\](){},])")
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)


def equal_output(printed: str, expected: str) -> bool:
    """Whether a program printed what is expected, token by token."""
    if printed == expected:
        return True
    ours, theirs = (text.split() for text in (printed, expected))
    return len(ours) == len(theirs) and all(map(_equal_token, ours, theirs))


def _equal_token(printed: str, expected: str) -> bool:
    if printed == expected:
        return True
    ours, theirs = map(_BRACKETS.split, (printed, expected))
    if len(ours) > 1:
        return len(ours) == len(theirs) and all(map(_equal_item, ours, theirs))
    return _equal_number(printed, expected)


def _equal_number(printed: str, expected: str) -> bool:
    if not (_NUMBER.fullmatch(printed) and _NUMBER.fullmatch(expected)):
        return False
    if not _INTEGER.fullmatch(expected):
        return math.isfinite(float(expected)) and _close(float(printed), float(expected))
    if _INTEGER.fullmatch(printed):
        return _canonical(printed) == _canonical(expected)
    return abs(float(printed)) < _MAX_EXACT and _close(float(printed), float(expected), relative=0.0)


def _equal_item(printed: str, expected: str) -> bool:
    """Compare the items of a list. Integers are compared as text: they may be parts of a date."""
    return printed == expected or (not _INTEGER.fullmatch(expected) and _equal_number(printed, expected))


def _canonical(integer: str) -> str:
    """Return an integer without plus sign and leading zeros: as text, since it can have any length."""
    digits = integer.lstrip("+-").lstrip("0") or "0"
    return f"-{digits}" if integer.startswith("-") and digits != "0" else digits


def _close(one: float, other: float, relative: float = TOLERANCE) -> bool:
    return one == other or math.isclose(one, other, rel_tol=relative, abs_tol=TOLERANCE)


def equal_values(result: Any, expected: Any) -> bool:
    """Whether a function returned what is expected, as plain data.

    A tuple equals a list, since JSON has lists alone, and so do the integer keys of a dictionary and their texts.
    """
    if isinstance(result, bool) or isinstance(expected, bool) or result is None or expected is None:
        return bool(result == expected) and not isinstance(result, float)
    if isinstance(result, float) or isinstance(expected, float):
        return _equal_numbers(result, expected)
    if isinstance(expected, str | bytes) or isinstance(result, str | bytes):
        return bool(result == expected)
    if isinstance(expected, Mapping):
        return isinstance(result, Mapping) and _equal_mappings(result, expected)
    if isinstance(expected, Set):
        found = {each for each in result if each in expected} if isinstance(result, Set) else set()
        return isinstance(result, Set) and len(result) == len(expected) == len(found)
    if isinstance(expected, Sequence):
        return (
            isinstance(result, Sequence) and len(result) == len(expected) and all(map(equal_values, result, expected))
        )
    return type(result) in (int, complex, type(expected)) and bool(result == expected)


def _equal_numbers(result: Any, expected: Any) -> bool:
    if not (isinstance(result, int | float) and isinstance(expected, int | float)):
        return False
    if isinstance(expected, int):
        return abs(result) < _MAX_EXACT and _close(result, expected, relative=0.0)
    try:
        return _close(float(result), expected) or (math.isnan(result) and math.isnan(expected))
    except OverflowError:
        return False


def _equal_mappings(result: Mapping[Any, Any], expected: Mapping[Any, Any]) -> bool:
    """Compare without hashing the keys of a result among themselves: they could all collide."""
    pairs = list(result.items())
    if not all(key in expected for key, _ in pairs):
        expected = {_text(key): value for key, value in expected.items()}
        pairs = [(_text(key), value) for key, value in pairs]
    return len(pairs) == len(expected) == len({key for key, _ in pairs if key in expected}) and all(
        equal_values(value, expected[key]) for key, value in pairs
    )


def _text(key: Any) -> Any:
    try:
        return str(key)
    except ValueError:  # an integer with too many digits
        return key
