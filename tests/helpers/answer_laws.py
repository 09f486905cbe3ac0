"""Pairs whose right verdict follows from a law.

A letter counts, another letter changes nothing, SymPy's printings of an expression equal it, and a near miss does not.
"""

import re
import string
from collections.abc import Iterator
from typing import Any

from sympy import latex, pretty

_TOKEN = re.compile(r"\\(?:begin|end|text[a-z]*|math[a-z]*|mbox|operatorname)\s*\{[^{}]*\}|\\[A-Za-z]+|[A-Za-z]+")
_DIGIT = re.compile(r"\d(?!\d)")
_PAIR = re.compile(r"(.*?)([(\[])([^()\[\],]+),([^()\[\],]+)([)\]])(.*)", re.DOTALL)
CONSTANTS = frozenset("ieIE")
"""Letters that may stand for a number."""
GREEK = tuple(
    f"\\{name}"
    for name in [
        "alpha",
        "beta",
        "gamma",
        "delta",
        "epsilon",
        "varepsilon",
        "zeta",
        "eta",
        "theta",
        "vartheta",
        "iota",
        "kappa",
        "lambda",
        "mu",
        "nu",
        "xi",
        "rho",
        "sigma",
        "tau",
        "upsilon",
        "phi",
        "varphi",
        "chi",
        "psi",
        "omega",
        "Gamma",
        "Delta",
        "Theta",
        "Lambda",
        "Xi",
        "Sigma",
        "Upsilon",
        "Phi",
        "Psi",
        "Omega",
        "ell",
    ]
)
LETTERS = tuple(letter for letter in string.ascii_letters if letter not in CONSTANTS) + GREEK
"""Letters that can be variables."""


def variables(text: str) -> list[re.Match[str]]:
    """The variables of a formula, none of a text: letters alone or side by side, at most two."""
    found = [token for token in _TOKEN.finditer(text) if not token[0].startswith("\\")]
    return [] if any(len(token[0]) > 2 for token in found) else found


def renamed(text: str, old: str, new: str) -> str:
    """A formula with another letter instead of one."""
    gap = " " if new.startswith("\\") else ""

    def written(token: re.Match[str]) -> str:
        return token[0] if token[0].startswith("\\") else token[0].replace(old, new + gap)

    return _TOKEN.sub(written, text)


def without_a_letter(reference: str) -> Iterator[str]:
    """A formula without its last variable, once for each letter. Empty texts and bases of powers are left out."""
    for letter in sorted({letter for token in variables(reference) for letter in token[0]} - CONSTANTS):
        place = max(token.start() + token[0].rfind(letter) for token in variables(reference) if letter in token[0])
        rest = reference[:place] + reference[place + 1 :]
        if re.search(r"\w", rest) and not reference[place + 1 :].lstrip().startswith(("^", "_", "'", "(", "=", "\\in")):
            yield rest


def near_misses(reference: str) -> Iterator[tuple[str, str]]:
    """Another answer of each kind that the form of a reference has."""
    digits = list(_DIGIT.finditer(reference))
    if digits:
        last = digits[-1]
        yield "digit", f"{reference[: last.start()]}{(int(last[0]) + 1) % 10}{reference[last.end() :]}"
    bare = re.sub(r"\\[A-Za-z]+", "", reference)
    is_value = re.fullmatch(r"[\w\\{}^ +]+", reference) and not re.match(r"\\(?:text|mathrm)", reference)
    if is_value and not re.search(r"[A-Za-z]{3}", bare) and re.search(r"[1-9a-z]", reference):
        yield "sign", f"-({reference})"
        yield "factor", f"2({reference})"
    if (pair := _PAIR.fullmatch(reference)) and pair[3].strip() != pair[4].strip() and "\\cup" not in reference:
        if pair[2] == "(" and pair[5] == ")":
            yield "order", f"{pair[1]}({pair[4]},{pair[3]}){pair[6]}"
        elif "infty" not in pair[3]:
            yield "end", f"{pair[1]}{'[' if pair[2] == '(' else '('}{pair[3]},{pair[4]}{pair[5]}{pair[6]}"


def printings(expression: Any) -> dict[str, str]:
    """The texts that a model with SymPy boxes for an expression, by the printer."""
    printed = {
        "latex": latex(expression),
        "inline": latex(expression, mode="inline"),
        "equation": latex(expression, mode="equation*"),
        "short fractions": latex(expression, fold_short_frac=True),
        "powers of fractions": latex(expression, fold_frac_powers=True),
        "no roots": latex(expression, root_notation=False),
        "ln": latex(expression, ln_notation=True),
        "times": latex(expression, mul_symbol="times"),
        "dots": latex(expression, mul_symbol="dot"),
        "inverse powers": latex(expression, inv_trig_style="power"),
        "full inverses": latex(expression, inv_trig_style="full"),
        "str": str(expression),
        "pretty": pretty(expression, use_unicode=True, wrap_line=False),
    }
    return {name: text for name, text in printed.items() if "\n" not in text}
