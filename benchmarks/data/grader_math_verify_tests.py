"""math-verify's own tests through torl's grader, compared with math-verify itself.

    python -m benchmarks.data.grader_math_verify_tests DIRECTORY

DIRECTORY is a checkout of github.com/huggingface/Math-Verify. Its tests give whole texts; torl grades answers, so that
each text is taken for its last box, or for the text in its only dollar signs, or as it is. Printed are the pairs
that torl judges otherwise than the test expects, and of these the ones that math-verify, given the same answers, judges
rightly.
"""

import argparse
import importlib
import inspect
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from torl.components.grading.equivalence import UndecidedError, equivalent
from torl.components.text.answers import find_answer

FILES = ("all", "boxed", "numina_cases", "open_thoughts", "yujianll", "strict", "string_extraction")
_MATH = re.compile(r"\$\$(.+?)\$\$|\$(.+?)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]|\\begin\{equation\}(.*?)\\end", re.DOTALL)


def cases(module: str) -> Iterator[tuple[str, str, bool]]:
    """The pairs of a file's parametrized tests, with the expected verdicts."""
    for _, test in inspect.getmembers(importlib.import_module(module), inspect.isfunction):
        for mark in getattr(test, "pytestmark", []):
            names = [name.strip() for name in mark.args[0].split(",")] if mark.name == "parametrize" else []
            if {"gold", "pred", "expected"} <= set(names):
                for row in mark.args[1]:
                    case = dict(zip(names, getattr(row, "values", row), strict=True))
                    yield case["gold"], case["pred"], bool(case["expected"])


def answer_in(text: str) -> str:
    """The answer in a text, as torl would receive it."""
    if (box := find_answer(text)) is not None:
        return box.text
    found = _MATH.findall(text)
    return next(filter(None, found[0])) if len(found) == 1 else text


def by_torl(reference: str, answer: str) -> bool:
    """An undecided pair is wrong."""
    try:
        return equivalent(reference, answer)
    except UndecidedError:
        return False


def by_math_verify(reference: str, answer: str) -> bool:
    """Both in boxes."""
    from math_verify import parse, verify

    gold, target = (parse(f"\\boxed{{{text}}}", parsing_timeout=None) for text in (reference, answer))
    return bool(verify(gold, target, timeout_seconds=None))


def main() -> None:
    """Print the differences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", metavar="DIRECTORY", type=Path, help="checkout of Math-Verify")
    logging.disable(logging.CRITICAL)
    sys.path.insert(0, str(parser.parse_args().directory.resolve()))
    pairs = [case for name in FILES for case in cases(f"tests.test_{name}")]
    other = [(answer_in(gold), answer_in(pred), expected) for gold, pred, expected in pairs]
    other = [case for case in other if by_torl(*case[:2]) is not case[2]]
    worse = [case for case in other if by_math_verify(*case[:2]) is case[2]]
    for name, found in (("otherwise than the test expects", other), ("of these rightly by math-verify", worse)):
        print(f"{len(found)} of {len(pairs)} pairs {name}:")
        print("".join(f"  {expected}: {gold[:70]!r} / {pred[:70]!r}\n" for gold, pred, expected in found))


if __name__ == "__main__":
    main()
