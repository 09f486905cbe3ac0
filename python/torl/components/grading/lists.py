r"""Members of lists and sides of equations: grouped digits between spaced commas, 1 \pm 2 as two members, chains."""

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
