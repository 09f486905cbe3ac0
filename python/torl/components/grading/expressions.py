r"""Read LaTeX as SymPy expressions, with math-verify's parser of a single formula.

math-verify's own `parse` also searches a text for numbers, and removes a letter after a number as a unit: `7t` is 7.
Here a text is read as a whole or not at all, and every letter counts. Letters that the parser takes for something else
(the d of a differential, the T of a transpose, Euler's gamma) are written so that it takes them for variables.
"""

import re
from functools import cache, lru_cache
from typing import Any

from torl.components.grading.tex import in_braces
from torl.components.grading.units import without_text_unit

_LETTER = re.compile(r"\\(?:begin|end|operatorname|text|mbox|math[a-z]*)\s*\{[^{}]*\}|\\[A-Za-z]+|[A-Za-z]")
_FUNCTION_OF = re.compile(r"\s*(?:\\left\s*)?\(")
_CALCULUS = re.compile(r"\\i*int(?![A-Za-z])|\\frac\s*\{\s*d[^{}]*\}\s*\{\s*d\s*[A-Za-z\\]")
_NOT_REAL_LETTERS = {"d", "E", "I", "T", "\\gamma", "\\Gamma"}
_PRIMED = re.compile(r"([A-Za-z])('+|\^\s*\{?\s*\\prime\s*\}?)")
_BLANK = re.compile(r"\s+(?![A-Za-z\d])|(?<![A-Za-z\d])\s+")
_EQUAL = re.compile(r"(?<![\\<!>])=")


def letters_of(text: str) -> set[str]:
    r"""Return the single letters of a formula, without commands, \text and the like."""
    return {found for found in _LETTER.findall(text) if len(found) == 1}


@lru_cache(maxsize=256)
def read(text: str) -> tuple[Any, str]:
    """Return a text as a SymPy expression, None if it cannot be read, and as normalized text."""
    from latex2sympy2_extended.math_normalization import normalize_latex

    normal = normalize_latex(in_braces(without_text_unit(_PRIMED.sub(_primed, text))), _normalization())
    expression = _parse(normal)
    if expression is None and len(sides := _EQUAL.split(normal)) > 2 and not set(",;") & set(normal):
        expression = _parse(sides[-1])  # a chain with a part that cannot be read
    return expression, _BLANK.sub("", normal)


def _parse(normal: str) -> Any:
    from latex2sympy2_extended.latex2sympy2 import ConversionConfig, latex2sympy

    try:
        return latex2sympy(
            _with_variables(normal),
            is_real=True,
            normalization_config=None,
            conversion_config=ConversionConfig(lowercase_symbols=False),
        )
    except MemoryError:  # the process must end
        raise
    except Exception:  # the parser has no error class; SymPy raises for 1/0 in a matrix and the like
        return None


def _with_variables(text: str) -> str:
    """Return a formula with its variables in a form that the parser reads as such."""
    has_calculus, has_matrix = _CALCULUS.search(text) is not None, "matrix" in text

    def written(found: re.Match[str]) -> str:
        letter = found[0]
        is_kept = letter not in _NOT_REAL_LETTERS or (letter == "d" and has_calculus) or (letter == "T" and has_matrix)
        if is_kept or (letter == "\\Gamma" and _FUNCTION_OF.match(text, found.end())):
            return letter
        return rf"\mathsf{{{letter}}}"

    return _LETTER.sub(written, text)


def _primed(found: re.Match[str]) -> str:
    return rf"{{\mathsf{{{found[1]}{'p' * max(1, found[2].count(chr(39)))}}}}}"


@cache
def _normalization() -> Any:
    from latex2sympy2_extended.math_normalization import NormalizationConfig

    return NormalizationConfig(units=False, malformed_operators=True, nits=True, boxed="none")
