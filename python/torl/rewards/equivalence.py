r"""Whether two answers are mathematically equal: math-verify's verdict on the text as written, or converted to LaTeX.

For grader processes only (`torl.rewards.worker`): a comparison may take forever or all memory on hostile input. The
first comparison loads math-verify, so that a process can set its limits before.
"""

import re
from dataclasses import replace
from functools import cache, lru_cache
from itertools import chain, product
from types import MappingProxyType
from typing import Any

from torl.rewards.bases import as_decimal, read_in_base
from torl.rewards.differences import is_bare_list, is_clearly_different, with_spaced_members
from torl.rewards.inequalities import as_sets
from torl.rewards.layout import have_same_words, is_vector, plain_layout
from torl.rewards.notation import (
    as_latex,
    as_tuple,
    has_decimal,
    is_column,
    is_single_choice,
    split_choice,
    with_fractions,
)
from torl.rewards.numerals import multiplied, plain_numbers, without_noise
from torl.rewards.units import have_other_units, without_currency, without_percent, without_plain_unit
from torl.types import ALTERNATIVE

_EXACT_PRECISION = MappingProxyType({"float_rounding": 50, "numeric_precision": 60})
_BOOLEANS = {"true", "false"}
_BELOW_ONE = re.compile(r"[+-]?0?\.\d+")
_FRACTION = re.compile(r"[+-]?(?:(\d{1,9})\s*/\s*(\d{1,9})|\\[dt]?frac\s*\{?(\d{1,9}?)\}?\s*\{?(\d{1,9})\}?)")


class UndecidedError(Exception):
    """math-verify failed on every comparison that might have been equal."""


def equivalent(reference: str, answer: str, *, exact: bool = False) -> bool:
    """Whether `answer` is the same mathematical object as `reference`, both in LaTeX or plain notation.

    The comparison is not symmetric: the form of the reference decides (math-verify 0.9, `verify`).

    Args:
        reference: Correct answer, or alternatives (`Problem.answers`).
        answer: Answer of a model.
        exact: Whether decimals are exact, so that no decimal equals an irrational number. A reference with decimals is
            compared as usual.

    Raises:
        UndecidedError: No comparison succeeded and at least one raised.
    """
    if ALTERNATIVE in reference:
        return _equals_one(reference.split(ALTERNATIVE), answer, exact)
    exact = exact and not has_decimal(reference)
    if is_vector(answer) and is_bare_list(reference):
        return False
    reference, answer = plain_layout(reference), plain_layout(answer)
    if have_other_units(reference, answer):
        return False
    answer = without_plain_unit(reference, answer)
    bases = read_in_base(reference), read_in_base(answer)
    if None not in bases:
        return bases[0] == bases[1]
    reference, answer = (as_decimal(without_currency(text)) for text in (reference, answer))
    answer = multiplied(answer) or answer
    if (value := multiplied(reference)) is not None and equivalent(value, answer, exact=exact):
        return True  # otherwise the word is a unit, as that of "how many million"
    reference, answer = plain_numbers(reference), plain_numbers(answer)
    answer = answer if exact else without_noise(reference, answer)
    if is_clearly_different(reference, answer):
        return False
    same = _same_choice(reference, answer, exact)
    if same is not None:
        return same
    if have_same_words(reference, answer):
        return True
    if {_boolean(reference), _boolean(answer)} <= _BOOLEANS:
        return _boolean(reference) == _boolean(answer)
    from math_verify import verify
    from sympy import Basic, nan, zoo

    options = {**(_EXACT_PRECISION if exact else {}), "timeout_seconds": None, "raise_on_error": True}
    options["allow_set_relation_comp"] = True
    pairs = dict.fromkeys([(reference, answer), (as_latex(reference), as_latex(answer))])
    others = (with_spaced_members(reference, answer), _without_percent(reference, answer))
    pairs |= dict.fromkeys(filter(None, [*others, *(_as_tuples(*pair) for pair in pairs)]))
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


def _equals_one(references: list[str], answer: str, exact: bool) -> bool:
    """Return whether an answer equals one of several references, each of its own alternatives if it has some too."""
    undecided: UndecidedError | None = None
    for each in answer.split(ALTERNATIVE):
        for reference in references:
            try:
                if equivalent(reference, each, exact=exact):
                    break
            except UndecidedError as error:
                undecided = error
        else:
            if undecided is not None:
                raise undecided
            return False
    return True


def _same_choice(reference: str, answer: str, exact: bool) -> bool | None:
    """Return whether two choices are equal, by their letters and, if both have it, their text; None for other texts.

    A choice with its text also answers a reference that is the text.
    """
    gold, target = split_choice(reference), split_choice(answer)
    if gold is None and target is not None and target[1] and is_single_choice(target[1]):
        return equivalent(reference, target[1], exact=exact) or None
    if gold is None or (target is None and not gold[1]) or (target is not None and not is_single_choice(target[1])):
        return None
    if target is None:
        return equivalent(gold[1], answer, exact=exact)
    if gold[0] != target[0]:
        return False
    return not (gold[1] and target[1]) or equivalent(gold[1], target[1], exact=exact)


def _without_percent(reference: str, answer: str) -> tuple[str, str] | None:
    """Return two texts without percent signs: 12.5 also answers "how many percent". None for other pairs.

    A number below 1 is the fraction that a percentage stands for: 0.5 and 1/2 are 50 %, not 0.5 %.
    """
    bare = without_percent(reference), without_percent(answer)
    return None if bare == (reference, answer) or _is_below_one(reference.strip(" $")) else bare


def _is_below_one(number: str) -> bool:
    fraction = _FRACTION.fullmatch(number)
    if fraction is None:
        return _BELOW_ONE.fullmatch(number) is not None
    over, under = (int(digits) for digits in fraction.groups() if digits)
    return over < under


def _boolean(text: str) -> str:
    return re.sub(r"\\text\s*\{([^{}]*)\}", r"\1", text.strip(" $.")).strip().lower()


def _as_tuples(reference: str, answer: str) -> tuple[str, str] | None:
    """Return a column vector and a tuple as tuples, None for other pairs."""
    if is_column(reference) == is_column(answer):
        return None
    gold, target = as_tuple(reference), as_tuple(answer)
    return None if gold is None or target is None else (gold, target)


def _with_imaginary_unit(gold: Any, target: Any) -> tuple[Any, Any] | None:
    """Return two expressions with i as the imaginary unit; None if neither contains it, or it cannot be there.

    math-verify reads i as a variable, for which i^2 is not -1. Equal expressions of a variable are also equal for the
    imaginary unit, so that this reading only matters if they are different.
    """
    from sympy import Basic, I

    if not (isinstance(gold, Basic) and isinstance(target, Basic)):
        return None
    units = {symbol: I for symbol in gold.free_symbols | target.free_symbols if str(symbol) in ("i", "I")}
    try:
        return (gold.subs(units), target.subs(units)) if units else None
    except Exception:  # of an inequality, an interval or a maximum: there i is an index
        return None


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
