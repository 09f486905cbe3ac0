r"""Pairs that differ in a way that math-verify passes over: relations, hedges, percentages, units, bases."""

import re
from decimal import Decimal
from types import MappingProxyType

_RELATION = re.compile(r"\\(?:ne|neq|ge|geq|geqslant|le|leq|leqslant|lt|gt|neg|lnot)(?![A-Za-z])|[<>≠≤≥¬]")
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?")
_CLOSE = Decimal("1e-6")
_EXACT = Decimal("1e-9")
_EXACT_PLACES = 4  # a reference with at most so many is meant as it stands

_QUALIFIED = re.compile(
    r"\b(?:more|less|fewer|at\s+(?:least|most)|greater|smaller|between|about|approximately|roughly|not|except)\b",
    re.IGNORECASE,
)
_PERCENT = re.compile(r"([+-]?\d+(?:\.\d+)?)\s*(?:\\?%|\\text\{\s*(?:%|percent)\s*\}|percent)")
_BASE = re.compile(r"\(?([0-9A-Za-z]+)\)?_\{?\s*(?:\\text\{)?\s*(\d+)\s*\}?\}?")
_WITH_UNIT = re.compile(
    r"[+-]?[\d.,]+\s*(?:\\[ ,;]|~)*\s*(?:\\(?:text|mathrm|textrm)\{\s*([A-Za-z]+)\s*\}|([A-Za-z]+))\.?"
)
_SET, _TUPLE = re.compile(r"\\\{|\\left\s*\\\{"), re.compile(r"\(|\\left\s*\(")

_UNIT_NAMES = (
    "mm millimeter millimeters",
    "cm centimeter centimeters",
    "m meter meters metre metres",
    "km kilometer kilometers",
    "in inch inches",
    "ft foot feet",
    "yd yard yards",
    "mi mile miles",
    "s sec second seconds",
    "min minute minutes",
    "h hr hour hours",
    "day days",
    "week weeks",
    "year years",
    "g gram grams",
    "kg kilogram kilograms",
    "lb pound pounds",
    "cent cents",
    "dollar dollars",
    "degree degrees",
    "radian radians",
)
_UNITS = MappingProxyType({name: names.split()[0] for names in _UNIT_NAMES for name in names.split()})


def is_clearly_different(reference: str, answer: str) -> bool:
    r"""Whether the answer is wrong in a way that math-verify passes over.

    - It is a relation where the reference is none (`\ge 5`, of which math-verify compares the 5), or is qualified where
      the reference is not ("5 or more"), or is a chain of different numbers (`6 = 5`, of which it compares the last).
    - Both are numbers that differ: in more than the seventh digit (math-verify compares six places behind the point:
      1e-7 with 1e-8), or at all, if the reference has few places.
    - It is a percentage other than the reference, which is whole and no percentage.
    - Both have a unit of length, time, mass, money or angle, and not the same.
    - Both have a base, and not the same; or the answer alone has one, and not ten.
    - One is a set, the other a tuple.
    """
    reference, answer = reference.strip(" $"), answer.strip(" $")
    if _RELATION.match(answer) and not _RELATION.search(reference):
        return True
    if _QUALIFIED.search(answer) and not _QUALIFIED.search(reference):
        return True
    if _NUMBER.fullmatch(reference) and _NUMBER.fullmatch(answer):
        return _differ(Decimal(reference), Decimal(answer), _places(reference))
    return (
        _is_other_chain(answer)
        or _is_other_percentage(reference, answer)
        or _have_other_units(reference, answer)
        or _have_other_bases(reference, answer)
        or _are_set_and_tuple(reference, answer)
    )


def _differ(one: Decimal, other: Decimal, places: int) -> bool:
    close = _EXACT if places <= _EXACT_PLACES else _CLOSE
    return abs(one - other) > close * max(abs(one), abs(other))


def _places(number: str) -> int:
    """Digits behind the point as it is written; many for one with an exponent."""
    return 99 if "e" in number.lower() else len(number.partition(".")[2])


def _is_other_chain(answer: str) -> bool:
    sides = [side.strip() for side in answer.split("=")]
    numbers = [Decimal(side) for side in sides if _NUMBER.fullmatch(side)]
    return len(sides) > 1 and len(numbers) == len(sides) and len(set(numbers)) > 1


def _is_other_percentage(reference: str, answer: str) -> bool:
    percentage = _PERCENT.fullmatch(answer)
    whole = re.fullmatch(r"[+-]?\d+", reference)
    return percentage is not None and whole is not None and Decimal(percentage[1]) != Decimal(reference)


def _have_other_units(reference: str, answer: str) -> bool:
    own, other = _WITH_UNIT.fullmatch(reference), _WITH_UNIT.fullmatch(answer)
    if own is None or other is None:
        return False
    units = [_UNITS.get((found[1] or found[2]).lower()) for found in (own, other)]
    return None not in units and units[0] != units[1]


def _have_other_bases(reference: str, answer: str) -> bool:
    own, other = _BASE.fullmatch(reference), _BASE.fullmatch(answer)
    if other is None:
        return False
    if own is None:
        return _NUMBER.fullmatch(reference) is not None and int(other[2]) != 10
    return int(own[2]) != int(other[2])


def _are_set_and_tuple(reference: str, answer: str) -> bool:
    return bool((_SET.match(reference) and _TUPLE.match(answer)) or (_TUPLE.match(reference) and _SET.match(answer)))
