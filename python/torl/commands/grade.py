r"""`torl grade REFERENCE ANSWER`: compare an answer with its reference, as in `torl grade '\frac{1}{2}' 0.5`."""

import argparse
import re
import sys
from collections.abc import Sequence

from torl.base.errors import RewardError
from torl.commands.command import reports_errors
from torl.components.grading.grader import Grader


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status: 0 for a correct answer, 1 for a wrong one."""
    parser = argparse.ArgumentParser(
        "torl grade",
        description="Compare an answer with its reference, mathematically. Many pairs: torl grader grade.",
    )
    parser.add_argument("reference", metavar="REFERENCE", type=str.strip, help="correct answer, in LaTeX or plain")
    parser.add_argument("answer", metavar="ANSWER", type=str.strip, help="answer to compare")
    parser.add_argument("--timeout-seconds", type=float, default=2.0, help="limit on CPU time (default %(default)g)")
    parser.add_argument("--exact", action="store_true", help="no decimal equals an irrational number or a third")
    words = sys.argv[1:] if arguments is None else arguments
    # argparse takes a word such as -\frac{1}{2} for an option, unless a space precedes it.
    options = parser.parse_args([f" {word}" if re.match("-(?!-|h$)", word) else word for word in words])
    try:
        with Grader(1, options.timeout_seconds, exact=options.exact) as grader:
            verdict = grader.grade(options.reference, options.answer)
    except ValueError as error:
        raise RewardError(str(error)) from error
    print(f"undecided: {verdict.failure}" if verdict.failure else "correct" if verdict.correct else "wrong")
    return 0 if verdict.correct else 1
