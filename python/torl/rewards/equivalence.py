r"""Whether two answers are mathematically equal: math-verify's verdict on the text as written, or converted to LaTeX.

For grader processes only (`torl.rewards.worker`): a comparison may take forever or all memory on hostile input. The
first comparison loads math-verify, so that a process can set its limits before.
"""

import re
from dataclasses import replace
from decimal import Decimal
from functools import cache, lru_cache
from itertools import chain, product
from types import MappingProxyType
from typing import Any

from torl.rewards.inequalities import as_sets
from torl.rewards.layout import plain_layout
from torl.rewards.notation import (
    as_latex,
    as_tuple,
    has_decimal,
    is_column,
    is_single_choice,
    split_choice,
    with_fractions,
)
from torl.rewards.numerals import plain_numbers

_RELATION = re.compile(r"\\(?:ne|neq|ge|geq|geqslant|le|leq|leqslant|lt|gt|neg|lnot)(?![A-Za-z])|[<>≠≤≥¬]")
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?")
_CLOSE = Decimal("1e-6")
_EXACT = Decimal("1e-9")
_EXACT_PRECISION = MappingProxyType({"float_rounding": 50, "numeric_precision": 60})
_BOOLEANS = {"true", "false"}
_EXACT_PLACES = 4  # a reference with at most this many decimals is exact

_QUALIFIED = re.compile(
    r"\b(?:more|less|fewer|at\s+(?:least|most)|greater|smaller|between|about|approximately|roughly|not|except)\b",
    re.IGNORECASE,
)
_PERCENT = re.compile(r"([+-]?\d+(?:\.\d+)?)\s*(?:\\?%|\\text\{\s*(?:%|percent)\s*\}|percent)")
_BASE = re.compile(r"\(?([0-9A-Za-z]+)\)?_\{?\s*(?:\\text\{)?\s*(\d+)\s*\}?\}?")
_WITH_UNIT = re.compile(
    r"[+-]?[\d.,]+\s*(?:\\[ ,;]|~)*\s*(?:\\(?:text|mathrm|textrm)\{\s*([A-Za-z]+)\s*\}|([A-Za-z]+))\.?"
)
_DEGREE_SIGN = re.compile(r"\\circ|\N{DEGREE SIGN}")
_RADIANS = re.compile(r"(?<![A-Za-z])rad(?:ians?)?(?![A-Za-z])")
_RATIO = re.compile(r"(?:.*=)?\s*\d[\d.]*(?:\s*:\s*\d[\d.]*)+")
_LISTED = re.compile(r"\s*(?:,|;|\\text\s*\{\s*(?:and|or)\s*\}|(?<![A-Za-z])(?:and|or)(?![A-Za-z]))\s*")
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
    "radian radians rad",
)
_UNITS = MappingProxyType({name: names.split()[0] for names in _UNIT_NAMES for name in names.split()})


class UndecidedError(Exception):
    """math-verify failed on every comparison that might have been equal."""


def equivalent(reference: str, answer: str, *, exact: bool = False) -> bool:
    """Whether `answer` is the same mathematical object as `reference`, both in LaTeX or plain notation.

    The comparison is not symmetric: the form of the reference decides (math-verify 0.9, `verify`).

    Args:
        reference: Correct answer.
        answer: Answer of a model.
        exact: Whether decimals are exact, so that no decimal equals an irrational number. A reference with decimals is
            compared as usual.

    Raises:
        UndecidedError: No comparison succeeded and at least one raised.
    """
    has_decimals = has_decimal(reference)
    reference, answer = (plain_numbers(plain_layout(text)) for text in (reference, answer))
    if is_clearly_different(reference, answer):
        return False
    same = _same_choice(reference, answer, exact)
    if same is not None:
        return same
    if {_boolean(reference), _boolean(answer)} <= _BOOLEANS:
        return _boolean(reference) == _boolean(answer)
    from math_verify import verify
    from sympy import Basic, nan, zoo

    exact = exact and not has_decimals
    options = {**(_EXACT_PRECISION if exact else {}), "timeout_seconds": None, "raise_on_error": True}
    options["allow_set_relation_comp"] = True
    pairs = dict.fromkeys([(reference, answer), (as_latex(reference), as_latex(answer))])
    pairs |= dict.fromkeys(filter(None, [_as_tuples(*pair) for pair in pairs]))
    if (sets := as_sets(reference, answer)) is not None:
        pairs[as_latex(sets[0]), as_latex(sets[1])] = None
    if exact:
        pairs = dict.fromkeys((gold, with_fractions(target)) for gold, target in pairs)
    error: Exception | None = None
    readings = list(chain.from_iterable(product(*map(_expressions, pair)) for pair in pairs))
    for gold, target in chain(readings, filter(None, (_with_imaginary_unit(*pair) for pair in readings))):
        if isinstance(target, Basic) and target in (nan, zoo):
            continue  # "1/0" is not a number, so it equals no number; math-verify raises
        try:
            if verify(gold, target, **options):
                return True
        except Exception as raised:
            error = raised
    if error is not None:
        raise UndecidedError(f"{type(error).__name__}: {error}") from error
    return False


def _same_choice(reference: str, answer: str, exact: bool) -> bool | None:
    """Return whether two choices are equal, by their letters and, if both have it, their text; None for other texts."""
    gold, target = split_choice(reference), split_choice(answer)
    if gold is None or (target is None and not gold[1]) or (target is not None and not is_single_choice(target[1])):
        return None
    if target is None:
        return equivalent(gold[1], answer, exact=exact)
    if gold[0] != target[0]:
        return False
    return not (gold[1] and target[1]) or equivalent(gold[1], target[1], exact=exact)


def _boolean(text: str) -> str:
    return re.sub(r"\\text\s*\{([^{}]*)\}", r"\1", text.strip(" $.")).strip().lower()


def _as_tuples(reference: str, answer: str) -> tuple[str, str] | None:
    """Return a column vector and a tuple as tuples, None for other pairs."""
    if is_column(reference) == is_column(answer):
        return None
    gold, target = as_tuple(reference), as_tuple(answer)
    return None if gold is None or target is None else (gold, target)


def _with_imaginary_unit(gold: Any, target: Any) -> tuple[Any, Any] | None:
    """Return two expressions with i as the imaginary unit; None if neither contains it.

    math-verify reads i as a variable, for which i^2 is not -1. Equal expressions of a variable are also equal for the
    imaginary unit, so that this reading only matters if they are different.
    """
    from sympy import Basic, I

    if not (isinstance(gold, Basic) and isinstance(target, Basic)):
        return None
    units = {symbol: I for symbol in gold.free_symbols | target.free_symbols if str(symbol) in ("i", "I")}
    return (gold.subs(units), target.subs(units)) if units else None


@lru_cache(maxsize=256)
def _expressions(text: str) -> tuple[Any, ...]:
    """Return the readings of `text`: a sympy expression if there is one, and the normalized text.

    Units are removed first ("5 cm"). This also reads the t of "\\sin^2 t" as tonnes and leaves no expression, so such
    a text is read again with its units.
    """
    from math_verify import ExprExtractionConfig, parse
    from sympy import Basic

    boxed = f"\\boxed{{{text}}}"
    units_off, as_written = _readers()
    readings = parse(boxed, (units_off, ExprExtractionConfig()), parsing_timeout=None)
    if not any(isinstance(reading, Basic) for reading in readings):
        readings = parse(boxed, (as_written, ExprExtractionConfig()), parsing_timeout=None) or readings
    return tuple(readings)


@cache
def _readers() -> tuple[Any, Any]:
    """Return math-verify's readers of LaTeX: with units removed, and as written."""
    from math_verify import LatexExtractionConfig

    units_off = LatexExtractionConfig(boxed_match_priority=0)
    return units_off, replace(units_off, normalization_config=replace(units_off.normalization_config, units=False))


def is_clearly_different(reference: str, answer: str) -> bool:
    r"""Whether the answer is wrong in a way that math-verify ignores.

    - The answer is a relation and the reference is not (`\ge 5`, of which math-verify compares the 5), or the answer
      alone is qualified ("5 or more"), or it is a chain of different numbers (`6 = 5`, of which it compares the last).
    - Both are numbers that differ: before the eighth digit (math-verify compares six decimals: 1e-7 with 1e-8), or at
      all, if the reference has few decimals.
    - The answer is a percentage other than the reference, which is a whole number.
    - Both have a unit of length, time, mass, money or angle, and the units differ.
    - Both have a base, and the bases differ; or the answer alone has a base other than ten.
    - One is a set, the other a tuple.
    - One is a ratio and the other a quotient (2:3 and 2/3).
    - The answer lists the reference, a single number, more than once.
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
        or _are_ratio_and_number(reference, answer)
        or _is_repeated_number(reference, answer)
    )


def _differ(one: Decimal, other: Decimal, places: int) -> bool:
    close = _EXACT if places <= _EXACT_PLACES else _CLOSE
    return abs(one - other) > close * max(abs(one), abs(other))


def _places(number: str) -> int:
    """Return the number of decimals as written; many for a number with an exponent."""
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
    for one, other in ((reference, answer), (answer, reference)):
        if _DEGREE_SIGN.search(one) and _RADIANS.search(other):
            return True
    first, second = _WITH_UNIT.fullmatch(reference), _WITH_UNIT.fullmatch(answer)
    if first is None or second is None:
        return False
    units = [_UNITS.get((found[1] or found[2]).lower()) for found in (first, second)]
    return None not in units and units[0] != units[1]


def _have_other_bases(reference: str, answer: str) -> bool:
    first, second = _BASE.fullmatch(reference), _BASE.fullmatch(answer)
    if second is None:
        return False
    if first is None:
        return _NUMBER.fullmatch(reference) is not None and int(second[2]) != 10
    return int(first[2]) != int(second[2])


def _are_set_and_tuple(reference: str, answer: str) -> bool:
    return bool((_SET.match(reference) and _TUPLE.match(answer)) or (_TUPLE.match(reference) and _SET.match(answer)))


def _are_ratio_and_number(reference: str, answer: str) -> bool:
    is_ratio = [_RATIO.fullmatch(text) is not None for text in (reference, answer)]
    return (is_ratio[0] and ":" not in answer) or (is_ratio[1] and ":" not in reference)


def _is_repeated_number(reference: str, answer: str) -> bool:
    members = _LISTED.split(answer) if _NUMBER.fullmatch(reference) else []
    return len(members) > 1 and all(member == reference for member in members)
