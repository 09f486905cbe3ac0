r"""Whether two answers are mathematically equal: math-verify's verdict on the text as written, or converted to LaTeX.

For grader processes only (`torl.components.grading.worker`): a comparison may take forever or all memory on hostile
input. The first comparison loads math-verify, so that a process can set its limits before.
"""

import re
from collections.abc import Iterator
from itertools import product
from typing import Any

from torl.base.types import ALTERNATIVE
from torl.components.grading.comparison import same
from torl.components.grading.differences import is_bare_list, is_clearly_different
from torl.components.grading.expressions import letters_of, read
from torl.components.grading.layout import have_same_words, is_vector, plain_layout
from torl.components.grading.lists import (
    as_sets,
    value_of_chain,
    with_plain_members,
    with_spaced_members,
    without_zero_groups,
)
from torl.components.grading.notation import (
    as_latex,
    as_tuple,
    has_decimal,
    is_column,
    is_single_choice,
    small_choice,
    split_choice,
    with_fractions,
)
from torl.components.grading.numerals import as_decimal, multiplied, plain_numbers, read_in_base, without_noise
from torl.components.grading.units import have_other_units, without_currency, without_percent, without_plain_unit

_BOOLEANS = {"true", "false", "yes", "no", "odd", "even"}
_LOGARITHM = re.compile(r"\\log(?![A-Za-z]|\s*_)")
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
    bare_reference, bare_answer = without_plain_unit(reference), without_plain_unit(answer)
    if bare_reference != reference and equivalent(bare_reference, bare_answer, exact=exact):
        return True  # otherwise the letter may be a variable: 12h answers "12 h"
    answer = answer if letters_of(reference) else bare_answer
    bases = read_in_base(reference), read_in_base(answer)
    if None not in bases:
        return bases[0] == bases[1]
    reference, answer = (as_decimal(without_currency(text)) for text in (reference, answer))
    answer = multiplied(answer) or answer
    if (value := multiplied(reference)) is not None and equivalent(value, answer, exact=exact):
        return True  # otherwise the word is a unit, as that of "how many million"
    reference, answer = (without_zero_groups(plain_numbers(text)) for text in (reference, answer))
    answer = answer if exact else without_noise(reference, answer)
    if is_clearly_different(reference, answer):
        return False
    by_choice = _same_choice(reference, answer, exact)
    if by_choice is not None:
        return by_choice
    if have_same_words(reference, answer):
        return True
    if {_boolean(reference), _boolean(answer)} <= _BOOLEANS:
        return _boolean(reference) == _boolean(answer)
    from sympy import Basic, nan, zoo

    error: Exception | None = None
    for gold, target in _readings(reference, answer, exact):
        if isinstance(target, Basic) and target in (nan, zoo):
            continue  # "1/0" is not a number, so it equals no number; math-verify raises
        try:
            if same(gold, target, exact=exact):
                return True
        except Exception as raised:
            error = raised
    if error is not None:
        raise UndecidedError(f"{type(error).__name__}: {error}") from error
    return False


def _readings(reference: str, answer: str, exact: bool) -> Iterator[tuple[Any, Any]]:
    """Yield the readings of two texts that are compared, the most likely first."""
    letters = letters_of(reference)
    pairs = [(reference, answer), (as_latex(reference, letters), as_latex(answer, letters))]
    others = [with_spaced_members(reference, answer), with_plain_members(reference, answer)]
    others += [_without_percent(reference, answer), *(_as_tuples(*pair) for pair in pairs)]
    pairs += filter(None, others)
    if (sets := as_sets(reference, answer)) is not None:
        pairs.append((as_latex(sets[0], letters), as_latex(sets[1], letters)))
    if (value := value_of_chain(reference)) is not None and "=" not in answer:
        pairs.append((as_latex(value, letters), as_latex(answer, letters)))
    pairs += [(natural, other) for gold, target in pairs for natural, other in _natural(gold, target)]
    if exact:
        pairs = [(gold, with_fractions(target)) for gold, target in pairs]
    for pair in dict.fromkeys(pairs):
        for readings in zip(*map(read, pair), strict=True):
            if None in readings:
                continue
            yield readings
            if (complex_readings := _with_imaginary_unit(*readings)) is not None:
                yield complex_readings


def _natural(reference: str, answer: str) -> Iterator[tuple[str, str]]:
    r"""Yield two texts with \log as the natural logarithm, as SymPy prints it, in one of them or both."""
    golds, targets = ([text, _LOGARITHM.sub(r"\\ln", text)] for text in (reference, answer))
    yield from (pair for pair in product(golds, targets) if pair != (reference, answer))


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

    A choice with its text also answers a reference that is the text, and a letter alone in lower case its capital.
    """
    gold, target = split_choice(reference), split_choice(answer)
    if gold is not None and small_choice(answer) == gold[0]:
        return True
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
    units = {symbol: I for symbol in gold.free_symbols | target.free_symbols if str(symbol) == "i"}
    try:
        return (gold.subs(units), target.subs(units)) if units else None
    except Exception:  # of an inequality, an interval or a maximum: there i is an index
        return None
