"""Answers that are wrong in a way that math-verify ignores."""

import re
from collections import Counter
from decimal import Decimal
from fractions import Fraction

from torl.components.grading.numerals import read_in_base
from torl.components.grading.verdict import read_rational

_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?")
_CLOSE = Decimal("1e-6")
_EXACT = Decimal("1e-9")
_CLOSE_RATIONALS = Fraction(1, 10_000)
_EXACT_PLACES = 4  # a reference with at most this many decimals is exact

_QUALIFIED = re.compile(
    r"\b(?:more|less|fewer|at\s+(?:least|most)|greater|smaller|between|about|approximately|roughly|not|except)\b",
    re.IGNORECASE,
)
_CHANGED = re.compile(
    r"\d\s*(?:\\(?:text|mathrm|textrm)\s*\{)?\s*(?:(?:squared|cubed)(?!\s+[A-Za-z])|factorial|(?:and|or)\s+(?:up|so|above|below|over|under))\b",
    re.IGNORECASE,
)
_OPEN_LIST = re.compile(r"[,;]\s*(?:\\[lc]?dots(?![A-Za-z])|\.\.\.|\N{HORIZONTAL ELLIPSIS})")
_QUANTITY = re.compile(
    r"\d\s*(?:\\(?:text|mathrm|textrm)\s*\{[^{}A-Za-z]*[A-Za-z]|(?!(?:sqrt|sin|cos|tan|log|ln|exp|pi)(?![a-z]))[A-Za-z]{2})"
)
_PERCENT = re.compile(r"([+-]?\d+(?:\.\d+)?)\s*(?:\\?%|\\text\{\s*(?:%|percent)\s*\}|percent)")
_RATIO = re.compile(r"(?:.*=)?\s*\d[\d.]*(?:\s*:\s*\d[\d.]*)+")
_LISTED = re.compile(r"\s*(?:,|;|\\text\s*\{\s*(?:and|or)\s*\}|(?<![A-Za-z])(?:and|or)(?![A-Za-z]))\s*")
_SET, _TUPLE = re.compile(r"\\\{|\\left\s*\\\{"), re.compile(r"\(|\\left\s*\(")
_ROUND, _OPENING = re.compile(r"[()\[\]]"), re.compile(r"[(\[]|\\\{")
_PAIR = re.compile(r"(?:\\left\s*)?\(([^()\[\]]+,[^()\[\]]+)(?:\\right\s*)?\)")
_ENCLOSED = re.compile(r"(?:\\left\s*)?(\[|\\\{)(.*?)(?:\\right\s*)?(?:\]|\\\})")
_BRACKET = re.compile(r"\A\s*\{|[()\[\]=<>⟨]|\\[{}]|\\(?:pm|mp|in|begin|le|ge|langle)(?![A-Za-z])")
_COMMAND = re.compile(r"\\[A-Za-z]+")
_NOT_CONSTANT = re.compile(r"[A-Za-z=<>,:;|()\[\]]|\\[{}]")


def is_clearly_different(reference: str, answer: str) -> bool:
    r"""Whether the answer is wrong in a way that math-verify ignores.

    - The answer alone is qualified ("5 or more"), or it is a chain of different numbers (`6 = 5`, of which math-verify
      compares the last).
    - A word changes the number of the answer ("5 squared"), or it continues a list (1, 2, \ldots), or it has two
      quantities and the reference is a number (3 hours and 30 minutes).
    - Both are numbers that differ: before the eighth digit (math-verify compares six decimals: 1e-7 with 1e-8), or at
      all, if the reference has few decimals. Or both are rational and differ in the first four digits, which six
      decimals of a small number lack.
    - The answer is a percentage other than the reference, which is a whole number.
    - The reference is a number and the answer has a base other than ten.
    - One is a set, the other a single tuple or interval.
    - One is a ratio and the other a quotient (2:3 and 2/3).
    - The answer lists the reference, a single number, more than once; or one of two lists repeats other numbers.
    - The reference is a tuple and the answer a list without brackets.
    - One is a list or a set of one number and the other a number: [5] and 5.
    """
    reference, answer = reference.strip(" $"), answer.strip(" $")
    if any(one.search(answer) and not one.search(reference) for one in (_QUALIFIED, _CHANGED, _OPEN_LIST)):
        return True
    if _NUMBER.fullmatch(reference) and _NUMBER.fullmatch(answer):
        return _differ(Decimal(reference), Decimal(answer), _places(reference))
    return (
        _are_other_rationals(reference, answer)
        or _is_other_chain(answer)
        or _is_other_percentage(reference, answer)
        or _is_in_other_base(reference, answer)
        or _are_set_and_tuple(reference, answer)
        or _are_ratio_and_number(reference, answer)
        or _have_other_lists(reference, answer)
        or _are_enclosed_and_bare(reference, answer)
        or (_NUMBER.fullmatch(reference) is not None and "=" not in answer and len(_QUANTITY.findall(answer)) > 1)
    )


def is_bare_list(text: str) -> bool:
    """Whether a text has at least two members and no brackets, equations or relations."""
    return len(_LISTED.split(text)) > 1 and _BRACKET.search(text) is None


def _differ(one: Decimal, other: Decimal, places: int) -> bool:
    close = _EXACT if places <= _EXACT_PLACES else _CLOSE
    return abs(one - other) > close * max(abs(one), abs(other))


def _are_other_rationals(reference: str, answer: str) -> bool:
    """Whether two rational numbers differ in their first four digits, unless the reference has decimals."""
    one, other = read_rational(reference), read_rational(answer)
    if one is None or other is None or "." in reference:
        return False
    return abs(one - other) > _CLOSE_RATIONALS * max(abs(one), abs(other))


def _places(number: str) -> int:
    """Return the number of decimals as written; many for a number with an exponent."""
    return 99 if "e" in number.lower() else len(number.partition(".")[2])


def _is_other_chain(answer: str) -> bool:
    sides = [side.strip() for side in answer.split("=")]
    numbers = [Decimal(side) for side in sides if _NUMBER.fullmatch(side)]
    return len(sides) > 1 and len(numbers) == len(sides) and len(set(numbers)) > 1


def _is_other_percentage(reference: str, answer: str) -> bool:
    percentage = _PERCENT.fullmatch(answer)
    whole = re.fullmatch(r"[+-]?\d+", reference)
    return percentage is not None and whole is not None and Decimal(percentage[1]) != Decimal(reference)


def _is_in_other_base(reference: str, answer: str) -> bool:
    based = read_in_base(answer)
    return based is not None and based[1] != 10 and _NUMBER.fullmatch(reference) is not None


def _are_set_and_tuple(reference: str, answer: str) -> bool:
    return any(_SET.match(one) and _is_tuple(other) for one, other in ((reference, answer), (answer, reference)))


def _is_tuple(text: str) -> bool:
    """Whether a text starts with a tuple or an interval that no other bracket follows, as in a list or a union."""
    depth = 0
    for bracket in _ROUND.finditer(text) if _TUPLE.match(text) else ():
        depth += 1 if bracket[0] in "([" else -1
        if depth == 0:
            return _OPENING.search(text, bracket.end()) is None
    return depth > 0


def _are_ratio_and_number(reference: str, answer: str) -> bool:
    is_ratio = [_RATIO.fullmatch(text) is not None for text in (reference, answer)]
    return (is_ratio[0] and ":" not in answer) or (is_ratio[1] and ":" not in reference)


def _have_other_lists(reference: str, answer: str) -> bool:
    members = _LISTED.split(answer)
    if len(members) == 1:
        return False
    if _NUMBER.fullmatch(reference):
        return all(member == reference for member in members)
    if _PAIR.fullmatch(reference):
        return is_bare_list(answer)
    gold, target = _numbers(_LISTED.split(reference)), _numbers(members)
    return gold is not None and target is not None and set(gold) == set(target) and gold != target


def _numbers(members: list[str]) -> Counter[Decimal] | None:
    return Counter(map(Decimal, members)) if all(map(_NUMBER.fullmatch, members)) else None


def _are_enclosed_and_bare(reference: str, answer: str) -> bool:
    found = [_ENCLOSED.fullmatch(text) for text in (reference, answer)]
    kinds = [None if one is None or not _is_constant(one[2]) else one[1] for one in found]
    if kinds[0] == kinds[1]:
        return False
    return all(kind or _is_constant(text) for kind, text in zip(kinds, (reference, answer), strict=True))


def _is_constant(text: str) -> bool:
    """Whether a text is a single value: it has no variable, relation, member or bracket."""
    return _NOT_CONSTANT.search(_COMMAND.sub("", text)) is None and re.search(r"\d", text) is not None
