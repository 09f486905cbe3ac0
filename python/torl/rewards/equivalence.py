"""Are two answers mathematically the same? math-verify's judgment of what was written, or of the same in LaTeX.

Runs inside grader processes only (`torl.rewards.worker`): it may take forever or all memory on hostile input.
The first comparison loads math-verify, so that a process can set its limits before.
"""

from dataclasses import replace
from functools import cache, lru_cache
from itertools import chain, product
from typing import Any

from torl.rewards.mismatches import is_clearly_different
from torl.rewards.notation import as_latex


class UndecidedError(Exception):
    """math-verify failed on every comparison that might have been equal."""


def equivalent(reference: str, answer: str) -> bool:
    """Whether `answer` is the same mathematical object as `reference`, both in LaTeX or plain notation.

    The comparison is not symmetric: the form of the reference decides (math-verify 0.9, `verify`).

    Raises:
        UndecidedError: no comparison succeeded and at least one raised.
    """
    if is_clearly_different(reference, answer):
        return False
    from math_verify import verify
    from sympy import Basic, nan, zoo

    pairs = dict.fromkeys([(reference, answer), (as_latex(reference), as_latex(answer))])
    error: Exception | None = None
    for gold, target in chain.from_iterable(product(*map(_expressions, pair)) for pair in pairs):
        if isinstance(target, Basic) and target in (nan, zoo):
            continue  # "1/0" is not a number, so it equals none; math-verify raises
        try:
            if verify(gold, target, timeout_seconds=None, raise_on_error=True, allow_set_relation_comp=True):
                return True
        except Exception as raised:
            error = raised
    if error is not None:
        raise UndecidedError(f"{type(error).__name__}: {error}") from error
    return False


@lru_cache(maxsize=256)
def _expressions(text: str) -> tuple[Any, ...]:
    """Readings of `text`: a sympy expression if there is one, and the normalized text.

    Units are taken off first ("5 cm"). That also takes the t of "\\sin^2 t" for tonnes and leaves no expression,
    so such a text is read again as it stands.
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
    """How math-verify reads LaTeX: with units taken off, and as it is written."""
    from math_verify import LatexExtractionConfig

    units_off = LatexExtractionConfig(boxed_match_priority=0)
    return units_off, replace(units_off, normalization_config=replace(units_off.normalization_config, units=False))
