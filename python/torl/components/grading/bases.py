"""Numerals of another base: 0x1F, 0b101 and 0o17 of programs, and 101_2 of textbooks."""

import re
from fractions import Fraction

from torl.components.grading.layout import bare

_COMMAND = re.compile(r"\\(?:text|texttt|mathtt|mathrm)\s*\{([^{}]*)\}|\\(?:left|right)(?=\s*[()])")
_LITERAL = re.compile(r"([+-]?)\s*0\s*(?:[xX]\s*([0-9A-Fa-f]{1,60})|[bB]\s*([01]{1,200})|[oO]\s*([0-7]{1,80}))")
_SUBSCRIPT = re.compile(
    r"([+-]?)\s*(\(?)\s*([+-]?[0-9A-Za-z]{1,200}(?:\.[0-9A-Za-z]{1,200})?)\s*(\)?)\s*_\s*\{?\s*(?:base\s*)?(\d{1,9}|[a-z]{3,7})\s*\}?"
)
_NAMES = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10}
_NAMES |= {"twelve": 12, "sixteen": 16}


def read_in_base(text: str) -> tuple[Fraction | str, int] | None:
    """Return the value of a numeral and its base; its digits if they are not of this base. None for other texts."""
    if (literal := _read_literal(text)) is not None:
        return literal
    found = _SUBSCRIPT.fullmatch(_plain(text))
    if found is None or bool(found[2]) != bool(found[4]) or not (found[5].isdecimal() or found[5] in _NAMES):
        return None
    base = _NAMES.get(found[5]) or int(found[5])
    digits = "-" * (found[1] == "-") + found[3]
    whole, _, rest = digits.partition(".")
    try:
        return Fraction(int(whole + rest, base), base ** len(rest)) if base else digits, base
    except ValueError:
        return digits, base


def as_decimal(text: str) -> str:
    """Return a literal of a program as a decimal: "31" for "0x1F"; other texts as they are."""
    literal = _read_literal(text)
    return text if literal is None else str(literal[0])


def _read_literal(text: str) -> tuple[Fraction, int] | None:
    found = _LITERAL.fullmatch(_plain(text))
    if found is None:
        return None
    base = 16 if found[2] else 2 if found[3] else 8
    return Fraction(int(found[1] + (found[2] or found[3] or found[4]), base)), base


def _plain(text: str) -> str:
    return _COMMAND.sub(r"\1", bare(text)).strip()
