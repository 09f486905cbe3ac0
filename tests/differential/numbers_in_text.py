"""Compares printed numbers: texts that are alike but for some of their numbers."""

import math
import re
from collections.abc import Callable

INTEGER = re.compile(r"(?<![\w.])-?\d+(?![\w.]*\d)(?!\.\d)")
NUMBER = re.compile(r"(?<![A-Za-z_\d.])-?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
# The parts of a complex number are floats, also where they are printed without a point.
WHOLE_PART = re.compile(r"(?<![\w.])(\d{15,17})(?=j)|(?<=\()(-?\d{15,17})(?=[+-])")
SPACE = re.compile(r"\s+")


def alike_but_numbers(one: str, other: str, close: Callable[[str, str], bool]) -> bool:
    """Whether two texts have the same words and as many numbers, of which each pair is equal or `close`."""
    one, other = (WHOLE_PART.sub(r"\g<0>.0", text) for text in (one, other))
    if _words(one) != _words(other):
        return False
    pairs = list(zip(NUMBER.findall(one), NUMBER.findall(other), strict=True))
    return all(a == b or close(a, b) for a, b in pairs)


def _words(text: str) -> list[str]:
    # Columns are as wide as their widest number, so spaces say nothing; nor does a sign that reads as an operator.
    return [SPACE.sub("", part).replace("+", "") for part in NUMBER.split(text)]


def within(tolerance: float, absolute: float = 0.0) -> Callable[[str, str], bool]:
    """Floats that differ by at most a unit of the last printed digit, `tolerance` of the larger one, or `absolute`."""

    def close(one: str, other: str) -> bool:
        if not _is_float(one) and not _is_float(other):
            return False
        a, b = float(one), float(other)
        if math.isinf(a) or math.isinf(b):
            return False
        unit = max(_last_place(one), _last_place(other)) * 1.01
        if max(_digits(one), _digits(other)) >= 15:
            unit = 0.0
        return abs(a - b) <= max(unit, tolerance * max(abs(a), abs(b)), absolute)

    return close


def _is_float(text: str) -> bool:
    return any(c in text for c in ".eE")


def _digits(text: str) -> int:
    return sum(c.isdigit() for c in re.split("[eE]", text)[0].replace(".", "").lstrip("-0"))


def _last_place(text: str) -> float:
    mantissa, _, exponent = text.lower().partition("e")
    fraction = mantissa.partition(".")[2]
    return 10.0 ** (int(exponent or 0) - len(fraction))
