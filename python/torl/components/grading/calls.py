r"""Calls of functions in printed code, as LaTeX: \sqrt{x + 1} for sqrt(x + 1), \binom{n}{k} for binomial(n, k)."""

import re
from types import MappingProxyType

from torl.components.grading.layout import members_of

_INVERSE = {f"a{name}": f"\\arc{name}({{0}})" for name in ("sin", "cos", "tan", "cot", "sec", "csc")}
_HYPERBOLIC = {f"a{name}": f"\\arc{name}({{0}})" for name in ("sinh", "cosh", "tanh")}
_PLAIN = {
    name: f"\\{name}({{0}})" for name in ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "exp", "ln")
}
_TEMPLATES = MappingProxyType(
    {
        **_PLAIN,
        **_INVERSE,
        **_HYPERBOLIC,
        "log": "\\ln({0})",
        "log2": "\\log_{{2}}({0})",
        "log10": "\\log_{{10}}({0})",
        "sqrt": "\\sqrt{{{0}}}",
        "cbrt": "\\sqrt[3]{{{0}}}",
        "abs": "|{0}|",
        "Abs": "|{0}|",
        "floor": "\\lfloor {0} \\rfloor",
        "ceil": "\\lceil {0} \\rceil",
        "ceiling": "\\lceil {0} \\rceil",
        "factorial": "({0})!",
        "gamma": "\\Gamma({0})",
        "binomial": "\\binom{{{0}}}{{{1}}}",
        "comb": "\\binom{{{0}}}{{{1}}}",
        "Fraction": "\\frac{{{0}}}{{{1}}}",
        "Rational": "\\frac{{{0}}}{{{1}}}",
        "Max": "\\max({0},{1})",
        "Min": "\\min({0},{1})",
        "Eq": "{0} = {1}",
        "**": "^{{{0}}}",
        "^": "^{{{0}}}",
    }
)
"""LaTeX of a call by its name, with its arguments."""
_LOGARITHM_TO_BASE = "\\log_{{{1}}}({0})"
_CALL = re.compile(
    r"(?<![\\\w.])(?:math\.|np\.|sympy\.)?("
    + "|".join(sorted((name for name in _TEMPLATES if name.isalnum()), key=len, reverse=True))
    + r")\(|(\*\*|\^)\s*\("
)


def with_latex_calls(text: str) -> str:
    """Return a text with its calls in LaTeX; a call with another number of arguments stays."""
    for found in reversed(list(_CALL.finditer(text))):  # inner calls start after outer ones
        if (end := _closing(text, found.end())) is None:
            continue
        arguments, name = members_of(text[found.end() : end]), found[1] or found[2]
        template = _LOGARITHM_TO_BASE if name == "log" and len(arguments) == 2 else _TEMPLATES[name]
        if template.count("{0}") + template.count("{1}") == len(arguments):
            text = text[: found.start()] + template.format(*arguments) + text[end + 1 :]
    return text


def _closing(text: str, start: int) -> int | None:
    depth = 1
    for position in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        if depth == 0:
            return position
    return None
