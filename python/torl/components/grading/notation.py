"""Convert the notations of programs and web pages to the LaTeX that math-verify reads.

A model with a Python interpreter boxes printed text: `1e-05`, `3j`, `x**2`, `2*pi`, `Fraction(3, 4)`, `sqrt(x + 1)`.
"""

import re
from collections.abc import Set
from types import MappingProxyType

from torl.components.grading.layout import members_of, trimmed, without_dollars, without_text
from torl.components.grading.numerals import plain_numbers

_CHARACTERS = str.maketrans(
    {
        "\N{DEGREE SIGN}": r"^\circ ",
        "\N{GREEK SMALL LETTER PI}": r"\pi ",
        "\N{GREEK CAPITAL LETTER GAMMA}": r"\Gamma ",
        "\N{INFINITY}": r"\infty ",
        "\N{EMPTY SET}": r"\emptyset ",
        "\N{MINUS SIGN}": "-",
        "\N{EN DASH}": "-",
        "\N{MULTIPLICATION SIGN}": r"\times ",
        "\N{MIDDLE DOT}": r"\cdot ",
        "\N{DIVISION SIGN}": "/",
        "\N{LESS-THAN OR EQUAL TO}": r"\le ",
        "\N{GREATER-THAN OR EQUAL TO}": r"\ge ",
        "\N{NOT EQUAL TO}": r"\ne ",
        "\N{DOT OPERATOR}": r"\cdot ",
        "\N{LOGICAL OR}": r"\vee ",
        "\N{LOGICAL AND}": r"\wedge ",
        "\N{BOX DRAWINGS LIGHT VERTICAL}": "|",
        "\N{DOUBLE-STRUCK ITALIC SMALL I}": "i",
        "\N{SUPERSCRIPT TWO}": "^{2}",
        "\N{SUPERSCRIPT THREE}": "^{3}",
        "\N{VULGAR FRACTION ONE HALF}": r"\frac{1}{2}",
        "\N{VULGAR FRACTION ONE THIRD}": r"\frac{1}{3}",
        "\N{VULGAR FRACTION TWO THIRDS}": r"\frac{2}{3}",
        "\N{VULGAR FRACTION ONE QUARTER}": r"\frac{1}{4}",
        "\N{VULGAR FRACTION THREE QUARTERS}": r"\frac{3}{4}",
    }
)
_ROOT = re.compile("\N{SQUARE ROOT}" r"\s*(\d+(?:\.\d+)?|[A-Za-z]|\([^()]*\))")
_IMAGINARY = re.compile(r"(?<=\d)j(?!\w)")
_POWER = re.compile(r"\*\*\s*(\([^()]*\)|-?\w+(?:\.\d+)?)")
_NAME = re.compile(r"(?<![\\A-Za-z])(pi|sqrt|sin|cos|tan|log|ln|exp)(?![A-Za-z])")
_THOUSANDS = re.compile(r"(?<=\d)\\[,:; ](?=\d{3}(?!\d))")

# Python's and sympy's notation of matrices, intervals and special numbers.
_INFINITY = re.compile(r"(?<![\\\w])(?:oo|inf|math\.inf|float\('inf'\))(?!\w)")
_CONSTANT = re.compile(r"(?<![A-Za-z\\{])[EI](?![A-Za-z}])")
_LETTER_IN_TEXT = re.compile(r"\\(?:text|mathrm)\s*\{\s*([A-Za-z])\s*\}")
_UPRIGHT = re.compile(r"\\mathrm\{([ei])\}")
_MATRIX = re.compile(r"(?:Matrix|array)?\(?\s*(\[\s*\[[^\[\]]*\](?:\s*,\s*\[[^\[\]]*\])*\s*\])\s*\)?")
_ROW = re.compile(r"\[([^\[\]]*)\]")
_INTERVAL = re.compile(r"Interval(?:\.(open|Lopen|Ropen))?\(([^(),]+),([^(),]+)\)")
_UNION = re.compile(r"Union\((.*)\)", re.DOTALL)
_BETWEEN = re.compile(r"(?<=[)\]}])\s*(?:,|U|\N{UNION})\s*(?=[(\[{])")
_MEMBERS = re.compile(r"(?<!\\)\{([^{}]*)\}")
_SETS = {"EmptySet": r"\emptyset", "Reals": r"\mathbb{R}", "Integers": r"\mathbb{Z}"}

# A choice of a problem with several, alone or with its text: C, (C), \text{(C) }12, \textbf{(C)}\ 12, C. 12.
_IN_TEXT = re.compile(r"\\(?:text|textbf|textrm|textnormal|mathrm|mathbf|boldsymbol)\s*\{([^{}]*)\}")
_CHOICE = re.compile(r"\s*(\(?)([A-J])([).]?)\s*")
_SMALL_CHOICE = re.compile(r"\s*(?:([a-j])[).]?|\(([a-j])\))\s*")
_SPACE = re.compile(r"(?:\\[ ,;:!]|\\q?quad|~|\s)+")
_OTHER_CHOICE = re.compile(
    r"(?<![A-Za-z\\])[A-J](?![A-Za-z])|\b(?:and|but|either|false|is|no|not|or|wrong)\b", re.IGNORECASE
)

_BOLD = re.compile(r"\\(?:boldsymbol|mathbf|bm|pmb)\s*\{([^{}]*)\}")
_COLUMN = re.compile(r"\\begin\{([pb]matrix|array)\}(?:\{[^{}]*\})?([^&]*)\\end\{\1\}")
_LIST = re.compile(r"(?:\\left\s*)?(?:\(|\[|\\langle)(.*?)(?:\\right\s*)?(?:\)|\]|\\rangle)", re.DOTALL)
_DECIMAL = re.compile(r"(?<![\d.])(\d*)\.(\d+)(?![\d.])")

_BRACKETS = {None: ("[", "]"), "open": ("(", ")"), "Lopen": ("(", "]"), "Ropen": ("[", ")")}


def as_latex(answer: str, letters: Set[str] = frozenset()) -> str:
    """Return a text in math-verify's LaTeX; notations that are not listed above stay as they are.

    Args:
        answer: Text to convert.
        letters: Variables, such as the E and I that are not SymPy's names of constants here, or the j of 3j.
    """
    text = _BOLD.sub(r"\1", plain_numbers(trimmed(answer)))
    text = _UPRIGHT.sub(r"\1 ", text)
    text = _LETTER_IN_TEXT.sub(lambda found: f" {found[1]}" if found[1] in letters else found[0], text)
    text = _ROOT.sub(lambda root: rf"\sqrt{{{root[1]}}}", text).translate(_CHARACTERS)
    text = text.replace(r"\varnothing", r"\emptyset")
    text = _THOUSANDS.sub("", from_python(text))
    if "j" not in letters:
        text = _IMAGINARY.sub("i", text)
    text = _CONSTANT.sub(lambda name: name[0] if name[0] in letters else name[0].lower(), text)
    text = _POWER.sub(lambda power: f"^{{{power[1]}}}", text)
    text = _NAME.sub(r"\\\1 ", text)
    return text.replace("*", r" \cdot ").strip()


def from_python(text: str) -> str:
    """Return the text with Python's notation in LaTeX; a logarithm without a backslash is the natural logarithm."""
    text = _SETS.get(text.strip(), _INFINITY.sub(r"\\infty ", text))
    if matrix := _MATRIX.fullmatch(text.strip()):
        rows = r" \\ ".join(row.replace(",", " & ") for row in _ROW.findall(matrix[1][1:-1]))
        return rf"\begin{{pmatrix}} {rows} \end{{pmatrix}}"
    text = _INTERVAL.sub(_bracketed, text)
    if union := _UNION.fullmatch(text.strip()):
        text = _BETWEEN.sub(r" \\cup ", union[1])
        text = _MEMBERS.sub(r"\\{\1\\}", text)
    text = re.sub(r"(?<=[)\]}])\s*(?:U|\N{UNION})\s*(?=[(\[]|\\left|\\\{)", r" \\cup ", text)
    return with_latex_calls(text)


def _bracketed(interval: re.Match[str]) -> str:
    left, right = _BRACKETS[interval[1]]
    # sympy prints an infinite end of a closed interval too.
    left = "(" if "infty" in interval[2] else left
    right = ")" if "infty" in interval[3] else right
    return f"{left}{interval[2]},{interval[3]}{right}"


def split_choice(text: str) -> tuple[str, str] | None:
    r"""Return the letter of a choice and the text after it: ("C", "12") for \textbf{(C)}\ 12, or None."""
    text = without_dollars(text)
    whole = _IN_TEXT.fullmatch(text)
    head = None if whole else _IN_TEXT.match(text)
    found = _CHOICE.match(whole[1] if whole else head[1] if head else text)
    if found is None or (found[1] and found[3] != ")") or (head and found.end() < len(head[1])):
        return None
    rest = whole[1][found.end() :] if whole else text[head.end() :] if head else text[found.end() :]
    rest = _SPACE.sub(" ", rest).strip()
    return None if rest and not found[3] else (found[2], rest.removesuffix("."))


def small_choice(text: str) -> str | None:
    r"""Return the letter of a choice in lower case, alone: "C" for c, (c), \text{c}; None for other texts."""
    found = _SMALL_CHOICE.fullmatch(without_text(without_dollars(text)))
    return (found[1] or found[2]).upper() if found else None


def is_single_choice(rest: str) -> bool:
    """Whether the text after a letter cannot name another letter or take the choice back."""
    return _OTHER_CHOICE.search(rest) is None


def as_tuple(text: str) -> str | None:
    r"""Return a column vector, or a tuple in any brackets, in parentheses: (1,2) for [1,2]."""
    text = without_dollars(text)
    if column := _COLUMN.fullmatch(text):
        return f"({','.join(entry.strip() for entry in _entries(column[2]))})"
    members = _LIST.fullmatch(text)
    return None if members is None or "," not in members[1] else f"({members[1].strip()})"


def is_column(text: str) -> bool:
    """Whether a text is a matrix with a single column of at least two entries."""
    column = _COLUMN.fullmatch(without_dollars(text))
    return column is not None and len(_entries(column[2])) > 1


def _entries(rows: str) -> list[str]:
    return rows.strip().removesuffix("\\\\").split("\\\\")


def has_decimal(text: str) -> bool:
    """Whether a text has a number with decimals."""
    return _DECIMAL.search(text) is not None


def with_fractions(text: str) -> str:
    r"""Return a text with its decimals as exact fractions: \frac{15}{10} for 1.5."""
    return _DECIMAL.sub(lambda number: rf"\frac{{{int(number[1] + number[2])}}}{{1{'0' * len(number[2])}}}", text)


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
