r"""The solution sets of inequalities in one variable: "x < 1 or x > 3" as (-\infty,1)\cup(3,\infty)."""

import re

from torl.components.grading.layout import bare

_MAX_CHARACTERS = 300
_WORD = r"\s*(?:\\(?:text|textrm|mathrm|mbox)\s*\{{[,\s]*{0}\s*\}}|(?<![A-Za-z\\]){0}(?![A-Za-z])|{1})\s*"
_OR = re.compile(_WORD.format("or", r"\\(?:lor|vee)(?![A-Za-z])|\N{LOGICAL OR}|\|\||(?<=\))\s*\|\s*(?=\()"))
_AND = re.compile(_WORD.format("and", r"\\(?:land|wedge)(?![A-Za-z])|\N{LOGICAL AND}|&&?"))
_SIGN = re.compile(
    r"(?P<le>\\(?:leqslant|leqq|leq|le)(?![A-Za-z])|<=|\N{LESS-THAN OR EQUAL TO})"
    r"|(?P<ge>\\(?:geqslant|geqq|geq|ge)(?![A-Za-z])|>=|\N{GREATER-THAN OR EQUAL TO})"
    r"|(?P<ne>\\(?:neq|ne)(?![A-Za-z])|!=|\N{NOT EQUAL TO})"
    r"|(?P<lt>\\lt(?![A-Za-z])|<)|(?P<gt>\\gt(?![A-Za-z])|>)"
)
_GREEK = (
    "alpha|beta|[gG]amma|[dD]elta|(?:var)?epsilon|zeta|eta|(?:var)?[tT]heta|iota|kappa|[lL]ambda|mu|nu|[xX]i|(?:var)?rho|"
    "(?:var)?[sS]igma|tau|[uU]psilon|(?:var)?[pP]hi|chi|[pP]si|[oO]mega|ell"
)
_VARIABLE = re.compile(rf"(?:[A-Za-z]|\\(?:{_GREEK})(?![A-Za-z]))(?:\([A-Za-z]\)|_\{{?\w\}}?)?")
_MEMBER = re.compile(rf"({_VARIABLE.pattern})\s*\\in(?![A-Za-z])(.+)", re.DOTALL)
_INFINITE = re.compile(r"[+-]?\s*(?:\\infty|oo)\s*")
_PARENTHESES = re.compile(r"(?:\\left\s*)?\(([^()]*(?:\([^()]*\)[^()]*)*)\)", re.DOTALL)
_COMMAND = re.compile(r"\\[A-Za-z]+")


def as_sets(reference: str, answer: str) -> tuple[str, str] | None:
    """Return two texts as sets if one has inequalities and the other has them too or is an interval, else None."""
    gold, target = solution_set(reference), solution_set(answer)
    if gold is None and target is None:
        return None
    if gold is not None and target is not None:
        return (gold[1], target[1]) if gold[0] == target[0] else None
    other = bare(reference if gold is None else answer)
    if not other.startswith(("(", "[", "\\left", "\\{")):
        return None
    return (other, target[1]) if target is not None else (gold[1], other) if gold is not None else None


def solution_set(text: str) -> tuple[str, str] | None:
    """Return the variable and the set that inequalities describe, None for other texts.

    Read are chains (1 < x < 3), two bounds joined by "and", and alternatives joined by "or". A comma has more than one
    meaning and is not read.
    """
    if len(text) > _MAX_CHARACTERS:
        return None
    text = bare(text)
    if member := _MEMBER.fullmatch(text):
        return member[1], member[2].strip()
    variables, sets = set(), []
    for part in _OR.split(text):
        if (found := _conjunction(_without_parentheses(part))) is None:
            return None
        variables.add(found[0])
        sets.append(found[1])
    return (variables.pop(), r" \cup ".join(sets)) if len(variables) == 1 else None


def _conjunction(text: str) -> tuple[str, str] | None:
    chains = [_chain(_without_parentheses(part)) for part in _AND.split(text)]
    variables, lower, upper = set(), "", ""
    for chain in chains:
        if chain is None or (chain[1] and lower) or (chain[2] and upper):
            return None  # two bounds on one side need mathematics
        variables.add(chain[0])
        lower, upper = lower or chain[1], upper or chain[2]
    if len(variables) != 1:
        return None
    if lower.startswith("!"):
        value = lower[1:]
        return (variables.pop(), rf"(-\infty,{value})\cup({value},\infty)") if len(chains) == 1 else None
    return variables.pop(), f"{lower or '(-' + chr(92) + 'infty'},{upper or chr(92) + 'infty)'}"


def _chain(text: str) -> tuple[str, str, str] | None:
    """Return the variable of a chain, its lower bound ("[1") and its upper bound ("3)"); "!3" excludes a value."""
    signs = [sign.lastgroup or "" for sign in _SIGN.finditer(text)]
    sides = [re.sub(r"^\{\}|\{\}$", "", side.strip()).strip() for side in _split(text)]
    if len(sides) not in (2, 3) or not all(sides) or any("=" in side or "," in side for side in sides):
        return None
    if len(sides) == 2 and not _VARIABLE.fullmatch(sides[0]):
        sides, signs = sides[::-1], [_flip(signs[0])]
    elif len(sides) == 3 and signs[0] in ("ge", "gt"):
        sides, signs = sides[::-1], [_flip(sign) for sign in reversed(signs)]
    *below, variable, above = sides  # by position: in "x < x" a bound is the same text
    bounds = [*below, above]
    if not _VARIABLE.fullmatch(variable) or any(_contains(side, variable) for side in bounds):
        return None
    if len(sides) == 3:
        if not set(signs) <= {"le", "lt"}:
            return None
        return variable, ("[" if signs[0] == "le" else "(") + bounds[0], bounds[1] + ("]" if signs[1] == "le" else ")")
    (bound,), (sign,) = bounds, signs
    if _INFINITE.fullmatch(bound):
        return variable, "", ""
    if sign == "ne":
        return variable, f"!{bound}", ""
    if sign in ("ge", "gt"):
        return variable, ("[" if sign == "ge" else "(") + bound, ""
    return variable, "", bound + ("]" if sign == "le" else ")")


def _without_parentheses(text: str) -> str:
    found = _PARENTHESES.fullmatch(text.strip())
    return text if found is None or not _SIGN.search(found[1]) else found[1].removesuffix("\\right")


def _split(text: str) -> list[str]:
    ends = [0, *(position for sign in _SIGN.finditer(text) for position in sign.span()), len(text)]
    return [text[start:stop] for start, stop in zip(ends[::2], ends[1::2], strict=True)]


def _flip(sign: str) -> str:
    return {"le": "ge", "lt": "gt", "ge": "le", "gt": "lt"}.get(sign, sign)


def _contains(side: str, variable: str) -> bool:
    return variable in (side if variable.startswith("\\") else _COMMAND.sub("", side))
