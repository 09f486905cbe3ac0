r"""Read LaTeX as SymPy expressions, with math-verify's parser of a single formula.

math-verify's own `parse` also searches a text for numbers, and removes a letter after a number as a unit: `7t` is 7.
Here a text is read as a whole or not at all, and every letter counts. Letters that the parser takes for something else
(the d of a differential, the T of a transpose, Euler's gamma) are written so that it takes them for variables.
Arguments of commands are put in braces, as TeX reads them: \frac a b is \frac{a}{b}, and \sqrt[4]5 is \sqrt[4]{5}.
"""

import re
from functools import cache, lru_cache
from typing import Any

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


_ARGUMENTS = {"frac": 2, "dfrac": 2, "tfrac": 2, "cfrac": 2, "binom": 2, "dbinom": 2, "tbinom": 2, "sqrt": 1}
_COMMAND = re.compile(r"\\([A-Za-z]+)")
_OPTION = re.compile(r"\s*(\[[^\[\]]*\])")
_TOKEN = re.compile(r"\s*(\\[A-Za-z]+|\\?[^\s{}\\])")
_SIZE = re.compile(r"\\(?:big|Big|bigg|Bigg)[lrm]?(?![A-Za-z])\s*")
_INVISIBLE = re.compile(r"\\[hv]?phantom\s*(?:\{[^{}]*\}|[^\s{}\\])")
_NAME = re.compile(r"\\operatorname\s*\{(a(?:sin|cos|tan|cot|sec|csc)h?)\}")
_CALL = re.compile(
    r"(\\(?:ln|log|exp|(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?)(?![A-Za-z])\s*(?:[_^]\s*(?:\{[^{}]*\}|\w))?)\s*\{\s*\\left\("
)
_DECORATION = re.compile(r"\\begin\{equation(\*?)\}(.*)\\end\{equation\1\}", re.DOTALL)


def in_braces(text: str) -> str:
    r"""Return a formula with the arguments of fractions, roots and binomials in braces, brackets without sizes."""
    if decorated := _DECORATION.fullmatch(text.strip()):
        text = decorated[2]
    text = _INVISIBLE.sub("", _SIZE.sub("", text)).replace("{smallmatrix}", "{matrix}")
    text = _NAME.sub(lambda name: f"\\arc{name[1][1:]}", text)
    for found in reversed(list(_CALL.finditer(text))):
        text = _without_braces(text, found)
    for found in reversed(list(_COMMAND.finditer(text))):
        if found[1] in _ARGUMENTS:
            text = text[: found.start()] + _with_arguments(found[1], text[found.end() :])
    return text


def _without_braces(text: str, found: re.Match[str]) -> str:
    r"""Return a text with \ln(x) for a \ln{\left(x \right)} as SymPy prints it, whose end the parser would not see."""
    start = found.end(1)
    argument = _argument(text, start)
    if argument is None or not argument[0].rstrip().endswith("\\right)"):
        return text
    inside = argument[0].strip()
    if _argument("{" + inside[len("\\left(") : -len("\\right)")] + "}", 0) is None:
        return text
    return text[:start] + inside + text[argument[1] :]


def _with_arguments(name: str, rest: str) -> str:
    """Return a command with its arguments in braces, and the text after it. It stays as it is without an argument."""
    written, position = "\\" + name.removeprefix("t").removeprefix("d").removeprefix("c"), 0
    if name == "sqrt" and (option := _OPTION.match(rest)):
        written, position = written + option[1], option.end()
    for _ in range(_ARGUMENTS[name]):
        if (argument := _argument(rest, position)) is None:
            return f"\\{name}{rest}"
        written, position = f"{written}{{{argument[0]}}}", argument[1]
    return written + rest[position:]


def _argument(text: str, position: int) -> tuple[str, int] | None:
    """Return an argument without its braces and the position after it: a group, a command or a character."""
    start = position + len(text[position:]) - len(text[position:].lstrip())
    if not text.startswith("{", start):
        token = _TOKEN.match(text, position)
        if token is None or token[1] in "()[]^_+-=,&|" or token[1].startswith("\\right"):
            return None
        if (inner := _ARGUMENTS.get(token[1][1:])) is None:
            return token[1], token.end()
        end = token.end()  # a command whose arguments are in braces already
        if option := _OPTION.match(text, end):
            end = option.end()
        for _ in range(inner):
            if (argument := _argument(text, end)) is None:
                return None
            end = argument[1]
        return text[token.start(1) : end], end
    depth = 0
    for end in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0) * (text[end - 1] != "\\" or end == start)
        if depth == 0:
            return text[start + 1 : end], end + 1
    return None
