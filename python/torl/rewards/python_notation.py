"""What Python and sympy print of matrices, intervals and special numbers, in the notation of a page."""

import re

_INFINITY = re.compile(r"(?<![\\\w])(?:oo|inf|math\.inf|float\('inf'\))(?!\w)")
_EULER = re.compile(r"(?<![\\\w])E(?=\s*\*)")
_LOGARITHM = re.compile(r"(?<![\\\w])(?:math\.|np\.)?log\(")
_CUBE_ROOT = re.compile(r"(?<![\\\w])cbrt\(([^()]*)\)")
_MATRIX = re.compile(r"(?:Matrix|array)?\(?\s*(\[\s*\[[^\[\]]*\](?:\s*,\s*\[[^\[\]]*\])*\s*\])\s*\)?")
_ROW = re.compile(r"\[([^\[\]]*)\]")
_INTERVAL = re.compile(r"Interval(?:\.(open|Lopen|Ropen))?\(([^(),]+),([^(),]+)\)")
_UNION = re.compile(r"Union\((.*)\)", re.DOTALL)
_BETWEEN = re.compile(r"(?<=[)\]])\s*(?:,|U|\N{UNION})\s*(?=[(\[])")

_BRACKETS = {None: ("[", "]"), "open": ("(", ")"), "Lopen": ("(", "]"), "Ropen": ("[", ")")}


def from_python(text: str) -> str:
    """The text with these in LaTeX; a logarithm without a backslash is Python's, the natural one."""
    text = _INFINITY.sub(r"\\infty ", text)
    if matrix := _MATRIX.fullmatch(text.strip()):
        rows = r" \\ ".join(row.replace(",", " & ") for row in _ROW.findall(matrix[1][1:-1]))
        return rf"\begin{{pmatrix}} {rows} \end{{pmatrix}}"
    text = _INTERVAL.sub(_bracketed, text)
    if union := _UNION.fullmatch(text.strip()):
        text = union[1]
        text = _BETWEEN.sub(r" \\cup ", text)
    text = re.sub(r"(?<=[)\]])\s*(?:U|\N{UNION})\s*(?=[(\[])", r" \\cup ", text)
    text = _EULER.sub("e", text)
    text = _CUBE_ROOT.sub(r"\\sqrt[3]{\1}", text)
    return _LOGARITHM.sub(r"\\ln(", text)


def _bracketed(interval: re.Match[str]) -> str:
    left, right = _BRACKETS[interval[1]]
    # sympy prints an infinite end of a closed interval too.
    left = "(" if "infty" in interval[2] else left
    right = ")" if "infty" in interval[3] else right
    return f"{left}{interval[2]},{interval[3]}{right}"
