"""The grader's verdicts over tables of pairs, compared with verdicts of math-verify alone."""

import json
import subprocess
import sys

import pytest

from grading_pairs import DIFFERENT, SAME
from torl.components.grading.equivalence import UndecidedError, equivalent

_ALONE = """
import json, logging, sys
from math_verify import parse, verify
logging.disable(logging.CRITICAL)
def read(text):
    return parse(chr(92) + "boxed{" + text + "}", parsing_timeout=None)
print(json.dumps([verify(read(gold), read(answer), timeout_seconds=None) for gold, answer in json.load(sys.stdin)]))
"""


def ours(reference: str, answer: str) -> bool:
    try:
        return equivalent(reference, answer)
    except UndecidedError:
        return False


@pytest.fixture(scope="module")
def alone() -> list[bool]:
    """math-verify's verdicts over all pairs, by its own functions in a separate process."""
    pairs = json.dumps([*SAME, *DIFFERENT])
    completed = subprocess.run([sys.executable, "-c", _ALONE], input=pairs, capture_output=True, text=True, check=True)
    verdicts: list[bool] = json.loads(completed.stdout)
    return verdicts


def test_one_verdict_is_wrong_where_math_verify_is_wrong_in_dozens(alone: list[bool]) -> None:
    right, wrong = alone[: len(SAME)], alone[len(SAME) :]
    assert [pair for pair in SAME if not ours(*pair)] == []
    passed = [pair for pair in DIFFERENT if ours(*pair)]
    assert passed == [("101_2", "101")]  # the base may be left out
    assert right.count(False) >= 24
    assert wrong.count(True) >= 24
    by_math_verify = {pair for pair, verdict in zip(DIFFERENT, wrong, strict=True) if not verdict}
    assert not by_math_verify.intersection(passed)


@pytest.mark.parametrize(
    ("reference", "answer"),
    [("50", "50\\%"), ("50\\%", "50"), ("0.5", "50\\%"), ("5 cm", "5 \\text{ centimeters}"), ("5", "5 cm"),
     ("12 \\text{ apples}", "12 \\text{ pears}"), ("10_2", "10_{2}"), ("10_2", "10"), ("5", "5 = 5"), ("5", "2+3=5"),
     ("\\text{at least } 5", "\\text{at least } 5"), ("0.333333", "0.3333333"), ("0.1", "0.1000000000000000055")],
)  # fmt: skip
def test_a_refusal_goes_no_further_than_it_says(reference: str, answer: str) -> None:
    assert ours(reference, answer)
