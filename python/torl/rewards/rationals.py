r"""Rational numbers as answers write them: 12, -0.5, 1e-05, 3/4, \frac{3}{4}. Read without a parser of LaTeX."""

import re
from fractions import Fraction

_LONGEST = 40  # characters: none of these numbers takes time
_DECIMAL = re.compile(r"[+-]?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d{1,2})?")
_FRACTION = re.compile(r"([+-]?)(?:\\[dt]?frac\{(\d+)\}\{(\d+)\}|(\d+)/(\d+))")
_APART = Fraction(1, 1000)


def read_rational(text: str) -> Fraction | None:
    """The number that a text is; None if it is none of these, or in a notation that may mean something else (007)."""
    if len(text) > _LONGEST:
        return None
    if _DECIMAL.fullmatch(text):
        return Fraction(text)
    found = _FRACTION.fullmatch(text)
    if found is None:
        return None
    numerator, denominator = found[2] or found[4], found[3] or found[5]
    return Fraction(int(found[1] + numerator), int(denominator)) if int(denominator) else None


def same_rational(one: Fraction, other: Fraction) -> bool | None:
    """Whether two numbers are equal; None where they are so close that a grader which rounds has to say."""
    if one == other:
        return True
    far = abs(one - other) > _APART * max(Fraction(1), abs(one), abs(other))
    return False if far else None
