"""What is said of one pair of answers, and the pairs of which it can be said without mathematics."""

import re
from dataclasses import dataclass

from torl.rewards.rationals import read_rational, same_rational

MAX_ANSWER_CHARACTERS = 2000
"""Characters. Longer answers (and more than twice as long as the reference) are wrong without being compared."""

_INTEGER = re.compile(r"-?[1-9][0-9]{0,29}|0")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is said of one pair. `failure` is "timeout" or "error"; the pair then counts as not correct."""

    correct: bool
    failure: str | None = None


def compare_exactly(reference: str, answer: str) -> Verdict | None:
    """Decide the pairs that need no mathematics, without a process; None for all others.

    Equal text is correct, two rational numbers are correct if equal and wrong if clearly not, an answer of absurd
    length is wrong. The first two never contradict math-verify (`tests/property/test_reward_equivalence.py`).
    """
    reference, answer = reference.strip(), answer.strip()
    if not answer or not reference:
        return Verdict(correct=False)
    if reference == answer:
        return Verdict(correct=True)
    if len(answer) > max(MAX_ANSWER_CHARACTERS, 2 * len(reference)):
        return Verdict(correct=False)
    if _INTEGER.fullmatch(reference) and _INTEGER.fullmatch(answer):
        return Verdict(correct=False)  # canonical integers are equal only as equal text
    one, other = read_rational(reference), read_rational(answer)
    same = None if one is None or other is None else same_rational(one, other)
    return None if same is None else Verdict(correct=same)
