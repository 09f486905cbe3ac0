"""How the grader judges and how fast: tables of judged pairs, and references against themselves and against others.

    python benchmarks/grader.py [PROBLEMS...] [--workers 2] [--timeout-seconds 2]

The tables are `tests/grading_pairs.py`; beside torl stands math-verify alone, in the same call. Of a file, every
reference should be equal to itself, by math-verify too (shortcuts are off here), and hardly any to another's.
"""

import argparse
import asyncio
import json
import random
import subprocess
import sys
import time
from pathlib import Path

from torl.data import load_problems
from torl.reward import Grader, Verdict


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
print(json.dumps([verify(read(gold), read(answer), timeout_seconds=None) for gold, answer in json.load(sys.stdin)]))
"""


def math_verify_alone(pairs: list[tuple[str, str]]) -> list[bool]:
    """Its verdicts, in a process of its own."""
    shown = subprocess.run(
        [sys.executable, "-c", _ALONE], input=json.dumps(pairs), capture_output=True, text=True, check=True
    )
    verdicts: list[bool] = json.loads(shown.stdout)
    return verdicts


async def judge_tables(grader: Grader) -> None:
    """Print the mistakes of torl and of math-verify alone, in both directions."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from grading_pairs import DIFFERENT, SAME

    for name, pairs, expected in (("right", SAME, True), ("wrong", DIFFERENT, False)):
        verdicts, rate = await judge(grader, list(pairs))
        ours = [pair for pair, verdict in zip(pairs, verdicts, strict=True) if verdict.correct is not expected]
        alone = sum(verdict is not expected for verdict in math_verify_alone(list(pairs)))
        print(f"{len(pairs)} {name} answers: torl misjudges {len(ours)}, math-verify alone {alone} ({rate:.0f}/s)")
        print("".join(f"  {reference} / {answer}\n" for reference, answer in ours), end="")


async def main() -> None:
    """Print one line for each file, then every exception."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--timeout-seconds", type=float, default=2.0)
    arguments = parser.parse_args()
    exceptions: list[str] = []
    async with Grader(arguments.workers, arguments.timeout_seconds) as grader:
        await judge_tables(grader)
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


if __name__ == "__main__":
    asyncio.run(main())
