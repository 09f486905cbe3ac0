"""Accuracy and speed of the grader: tables of judged pairs, and references against themselves and against others.

    python -m benchmarks.data.grader [PROBLEMS...] [--workers 2] [--timeout-seconds 2] [--peers PYTHON...]

The tables are `tests/helpers/grading_pairs.py`; compared with math-verify alone, in the same call, and with `--peers`
the graders of verl and TRL (.venv/peers/bin/python) and of prime-rl (.venv/verifiers/bin/python). Of a file, every
reference should be equal to itself, by math-verify too (shortcuts are off here), and hardly any to another's. Last, how
many pairs are judged in a second.
"""

import argparse
import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.helpers.grading_pairs import DIFFERENT, SAME
from torl.components.data import load_problems
from torl.components.grading import Grader, Verdict
from torl.components.grading.verdict import compare_exactly


async def judge(grader: Grader, pairs: list[tuple[str, str]]) -> tuple[list[Verdict], float]:
    """The verdicts of math-verify, and the pairs judged in a second."""
    start = time.perf_counter()
    verdicts = await asyncio.gather(*(grader.grade_async(*pair, shortcuts=False) for pair in pairs))
    return verdicts, len(pairs) / (time.perf_counter() - start)


_ALONE = """
import json, logging, sys
from math_verify import parse, verify
logging.disable(logging.CRITICAL)
def read(text):
    return parse(chr(92) + "boxed{" + text + "}", parsing_timeout=None)
pairs = json.load(sys.stdin)
verdicts = [verify(read(gold), read(answer), timeout_seconds=None) for gold, answer in pairs]
print(json.dumps({"math-verify alone": verdicts}))
"""


def verdicts_of(command: list[str], pairs: list[tuple[str, str]]) -> dict[str, list[bool]]:
    """The verdicts of the graders of a program, by their names."""
    completed = subprocess.run(command, input=json.dumps(pairs), stdout=subprocess.PIPE, text=True, check=True)
    verdicts: dict[str, list[bool]] = json.loads(completed.stdout)
    return verdicts


async def judge_tables(grader: Grader, peers: Sequence[str]) -> None:
    """Print the mistakes of each grader in both directions, and how many of them torl makes where it makes none."""
    pairs, right = [*SAME, *DIFFERENT], [True] * len(SAME) + [False] * len(DIFFERENT)
    verdicts, _ = await judge(grader, pairs)
    table = {"torl": [verdict.correct for verdict in verdicts]}
    table |= verdicts_of([sys.executable, "-c", _ALONE], pairs)
    for python in peers:
        table |= verdicts_of([python, str(Path(__file__).with_name("grader_peers.py"))], pairs)
    wrong = {name: [judged is not right[n] for n, judged in enumerate(column)] for name, column in table.items()}
    print(f"| grader | {len(SAME)} right: missed | {len(DIFFERENT)} wrong: passed | right where torl is not |")
    print("|---|---:|---:|---:|")
    for name, column in wrong.items():
        better = sum(ours and not theirs for ours, theirs in zip(wrong["torl"], column, strict=True))
        print(f"| {name} | {sum(column[: len(SAME)])} | {sum(column[len(SAME) :])} | {better} |")
    print(
        "".join(
            f"  torl: {reference} / {answer}\n"
            for (reference, answer), w in zip(pairs, wrong["torl"], strict=True)
            if w
        )
    )


async def measure_speed(grader: Grader, references: list[str]) -> None:
    """Print the pairs that are judged in a second, as a reward asks for them; none comes twice."""
    numbers = [(f"\\frac{{{n}}}{{8}}", str(n / 8 + (n % 2))) for n in range(1, 20_001)]
    numbers += [(str(n), f"{n}.0") for n in range(1, 20_001)]
    others = random.Random(1).sample(references, len(references))
    shuffled = list(zip(references, others, strict=True))
    for name, pairs in (("numbers in two notations", numbers), ("shuffled references", shuffled)):
        exact = sum(compare_exactly(*pair) is not None for pair in pairs)
        start = time.perf_counter()
        await asyncio.gather(*(grader.grade_async(*pair) for pair in pairs))
        rate = len(pairs) / (time.perf_counter() - start)
        print(f"{len(pairs)} pairs, {name}: {rate:.0f}/s; {exact} of them need no mathematics")


async def main() -> None:
    """Print the tables, one line for each file, then every exception and the speed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--timeout-seconds", type=float, default=2.0)
    parser.add_argument("--peers", metavar="PYTHON", nargs="+", default=[], help="interpreters with other graders")
    arguments = parser.parse_args()
    exceptions: list[str] = []
    async with Grader(arguments.workers, arguments.timeout_seconds) as grader:
        await judge_tables(grader, arguments.peers)
        for path in arguments.problems:
            references = [problem.answer for problem in load_problems(path)]
            others = random.Random(0).sample(references, len(references))
            itself, rate = await judge(grader, [(reference, reference) for reference in references])
            shuffled, shuffled_rate = await judge(grader, list(zip(references, others, strict=True)))
            false = [
                (reference, other)
                for reference, other, verdict in zip(references, others, shuffled, strict=True)
                if verdict.correct and reference != other
            ]
            print(
                f"{path.name}: {len(references)} references, {sum(v.correct for v in itself)} equal to themselves "
                f"({rate:.0f}/s); of as many shuffled pairs {len(false)} of different text equal "
                f"({shuffled_rate:.0f}/s); "
                f"{sum(v.failure is not None for v in itself + shuffled)} failures",
                flush=True,
            )
            pairs = zip(references, itself, strict=True)
            exceptions += [f"{path.name}: not itself: {text}" for text, verdict in pairs if not verdict.correct]
            exceptions += [f"{path.name}: judged equal: {reference} and {other}" for reference, other in false]
    print("\n".join(exceptions))
    async with Grader(arguments.workers, arguments.timeout_seconds) as grader:
        await measure_speed(
            grader, sorted({each.answer for path in arguments.problems for each in load_problems(path)})
        )


if __name__ == "__main__":
    asyncio.run(main())
