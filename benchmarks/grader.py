"""How the grader judges and how fast: references against themselves, and against the references of other problems.

    python benchmarks/grader.py PROBLEMS... [--workers 2] [--timeout-seconds 2]

Every reference should be equal to itself, by math-verify too (shortcuts are off here), and hardly any to another's.
"""

import argparse
import asyncio
import random
import time
from pathlib import Path

from torl.data import load_problems
from torl.reward import Grader, Verdict


async def judge(grader: Grader, pairs: list[tuple[str, str]]) -> tuple[list[Verdict], float]:
    """The verdicts of math-verify, and the pairs judged in a second."""
    start = time.perf_counter()
    verdicts = await asyncio.gather(*(grader.compare_async(*pair, shortcuts=False) for pair in pairs))
    return verdicts, len(pairs) / (time.perf_counter() - start)


async def main() -> None:
    """Print one line for each file, then every exception."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="+", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--timeout-seconds", type=float, default=2.0)
    arguments = parser.parse_args()
    exceptions: list[str] = []
    async with Grader(arguments.workers, arguments.timeout_seconds) as grader:
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
