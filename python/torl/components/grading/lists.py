r"""Lists, chains of equations, and inequalities in one variable, in the form that math-verify compares.

Grouped digits between spaced commas are numbers, 1 \pm 2 is two members, a chain has a value, and "x < 1 or x > 3" is
(-\infty,1)\cup(3,\infty).
"""

import re

from torl.components.grading.expressions import letters_of
from torl.components.grading.layout import bare, members_of

_SPACED = re.compile(r"(?<=\d),\s+(?=[+-]?\d)")
_BETWEEN_NUMBERS = re.compile(r"(?<=\d),\s*(?=[+-]?\d)")
_ZERO_GROUP = re.compile(r"(?<![\d,])\d{1,3}(?:,\d{3})*,0\d\d(?:,\d{3})*(?!,?\d)")
_GROUPED = re.compile(r"[+-]?\d{1,3}(?:(?:,|\{,\}|,\\!)\d{3})+(?:\.\d+)?")
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?")
_SET = re.compile(r"(\\left\s*\\\{|\\\{)(.*)(\\right\s*\\\}|\\\})", re.DOTALL)
_SIGNS = re.compile(r"\\(pm|mp)(?![A-Za-z])|[±∓]")
_EQUAL = re.compile(r"(?<![\\<!>])=")
_VALUE = re.compile(r"\s*(?:[A-Za-z]{1,3}|\\[A-Za-z]+)\s*(?:\\left\s*)?\([^()=]*\)\s*")


def with_spaced_members(reference: str, answer: str) -> tuple[str, str] | None:
    """Return two texts with a space after each comma between numbers, if one of them has such a space already.

    Then a comma separates members there and not the thousands of a number, as math-verify reads "243,625". None if
    both are unclear.
    """
    if not (_SPACED.search(reference) or _SPACED.search(answer)):
        return None
    return _BETWEEN_NUMBERS.sub(", ", reference), _BETWEEN_NUMBERS.sub(", ", answer)


def without_zero_groups(text: str) -> str:
    """Return a list with spaced commas with numbers without groups, where a group such as 000 cannot be a member."""
    return _ZERO_GROUP.sub(lambda number: number[0].replace(",", ""), text) if _SPACED.search(text) else text


def with_plain_members(reference: str, answer: str) -> tuple[str, str] | None:
    r"""Return two lists with plain members, None if they are so already.

    Numbers in groups between spaced commas are numbers (1,000, 500) if the other list has as many members, and a
    member with \pm is two.
    """
    plain = [_without_signs(text) for text in (reference, answer)]
    spaced = [re.split(r",\s+", bare(text)) for text in plain]
    if any(len(members) > 1 and any(map(_GROUPED.fullmatch, members)) for members in spaced):
        members = [one if len(one) > 1 else re.split(r"\s*,\s*", one[0]) for one in spaced]
        numbers = [[re.sub(r",|\{,\}|\\!", "", each) for each in one] for one in members]
        if len(members[0]) == len(members[1]) and all(_NUMBER.fullmatch(each) for one in numbers for each in one):
            plain = [", ".join(one) for one in numbers]
    return (plain[0], plain[1]) if plain != [reference, answer] else None


def value_of_chain(text: str) -> str | None:
    """Return the last side of a chain of equations that is a value: 3/2 of "(1/2) 3 = 3/2"; None for other texts.

    The first side is a value too, or one of a function, or there are three sides, the last of them a value.
    """
    first, *others = _EQUAL.split(text)
    if not others or letters_of(others[-1]) or "," in text:
        return None
    return others[-1] if len(others) > 1 or not letters_of(first) or _VALUE.fullmatch(first) else None


def _without_signs(text: str) -> str:
    r"""Return a list or a set in which a member with \pm is two members."""
    if not _SIGNS.search(text):
        return text
    enclosed = _SET.fullmatch(bare(text))
    members = members_of(enclosed[2] if enclosed else bare(text))
    if len(members) == 1:
        return text
    both = [signed for each in members for signed in _with_signs(each)]
    return f"{enclosed[1]}{', '.join(both)}{enclosed[3]}" if enclosed else ", ".join(both)


def _with_signs(member: str) -> list[str]:
    r"""Return a member with \pm as two members, the upper signs first."""
    upper, lower = (
        _SIGNS.sub(lambda found, signs=signs: signs["pm" in found[0] or "±" in found[0]], member)  # type: ignore[misc]
        for signs in ("-+", "+-")
    )
    return [member] if upper == lower else [upper, lower]


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
    ends = [0, *(position for sign in _SIGN.finditer(text) for position in sign.span()), len(text)]
    sides = [text[start:stop].strip() for start, stop in zip(ends[::2], ends[1::2], strict=True)]
    sides = [re.sub(r"^\{\}|\{\}$", "", side).strip() for side in sides]
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


def _flip(sign: str) -> str:
    return {"le": "ge", "lt": "gt", "ge": "le", "gt": "lt"}.get(sign, sign)


def _contains(side: str, variable: str) -> bool:
    return variable in (side if variable.startswith("\\") else _COMMAND.sub("", side))
