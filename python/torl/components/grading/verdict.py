r"""Verdicts on pairs of answers: those that need no mathematics, and a cache of all others."""

import hashlib
import re
import threading
from dataclasses import dataclass
from fractions import Fraction

from torl.base.types import ALTERNATIVE

MAX_ANSWER_CHARACTERS = 2000
"""Limit on the characters of an answer: a longer one, of more than twice the reference's length, is wrong."""
CACHE_CAPACITY = 200_000
"""Number of verdicts that a cache keeps; the oldest are dropped first. Each takes about 300 bytes."""

_INTEGER = re.compile(r"-?[1-9][0-9]{0,29}|0")
_MAX_NUMBER_CHARACTERS = 40
_DECIMAL = re.compile(r"[+-]?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d{1,2})?")
_FRACTION = re.compile(r"([+-]?)(?:\\[dt]?frac\{(\d+)\}\{(\d+)\}|(\d+)/(\d+))")
_CLEARLY_DIFFERENT = Fraction(1, 1000)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a pair of answers."""

    correct: bool
    """Whether the answer equals the reference."""
    failure: str | None = None
    """ "timeout" or "error" if the pair could not be compared; it then counts as not correct."""


def compare_exactly(reference: str, answer: str, *, exact: bool = False) -> Verdict | None:
    """Return the verdict on a pair that needs no mathematics, None for all others.

    Equal text is correct, two rational numbers are correct if equal and wrong if clearly different, and an answer that
    is far too long is wrong. The first two never contradict math-verify (`test_equivalence.py`).

    Args:
        reference: Correct answer, or alternatives (`Problem.answers`).
        answer: Answer of a model.
        exact: Whether all rational numbers that differ are different, unless the reference has decimals.
    """
    if ALTERNATIVE in reference:
        verdicts = [compare_exactly(each, answer, exact=exact) for each in reference.split(ALTERNATIVE)]
        correct = any(each is not None and each.correct for each in verdicts)
        return Verdict(correct=correct) if correct or None not in verdicts else None
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
    if exact and same is None and one is not None and other is not None and "." not in reference:
        same = False
    return None if same is None else Verdict(correct=same)


def read_rational(text: str) -> Fraction | None:
    r"""Return the number of a text such as 12, -0.5, 1e-05, 3/4 or \frac{3}{4}.

    None for all other texts, also for a notation with more than one meaning (007).
    """
    if len(text) > _MAX_NUMBER_CHARACTERS:
        return None
    if _DECIMAL.fullmatch(text):
        return Fraction(text)
    found = _FRACTION.fullmatch(text)
    if found is None:
        return None
    numerator, denominator = found[2] or found[4], found[3] or found[5]
    return Fraction(int(found[1] + numerator), int(denominator)) if int(denominator) else None


def same_rational(one: Fraction, other: Fraction) -> bool | None:
    """Return whether two numbers are equal, None if they are so close that rounding decides."""
    if one == other:
        return True
    different = abs(one - other) > _CLEARLY_DIFFERENT * max(Fraction(1), abs(one), abs(other))
    return False if different else None


class VerdictCache:
    """The verdicts of a grader. Thread-safe: while one thread grades a pair, the others wait for its verdict."""

    def __init__(self, capacity: int = CACHE_CAPACITY) -> None:
        self._capacity = capacity
        self._verdicts: dict[bytes, Verdict] = {}
        self._pending: set[bytes] = set()
        self._changed = threading.Condition()

    def get(self, pair: bytes) -> Verdict | None:
        """Return the verdict on a pair. If it is None, the caller must grade the pair and call `put` in any case."""
        with self._changed:
            self._changed.wait_for(lambda: pair not in self._pending)
            if pair not in self._verdicts:
                self._pending.add(pair)
            return self._verdicts.get(pair)

    def put(self, pair: bytes, verdict: Verdict | None) -> None:
        """Store a verdict; None if another attempt could give a different one."""
        with self._changed:
            self._pending.discard(pair)
            if verdict is not None:
                self._verdicts[pair] = verdict
            if len(self._verdicts) > self._capacity:
                del self._verdicts[next(iter(self._verdicts))]
            self._changed.notify_all()


def pair_key(reference: str, answer: str) -> bytes:
    """Return a digest of a pair, for texts of any length."""
    first, second = (text.encode("utf-8", errors="surrogatepass") for text in (reference, answer))
    return hashlib.blake2b(len(first).to_bytes(8) + first + second, digest_size=16).digest()
