"""Public programs judged by torl and by a CPython of this machine: how many verdicts differ, and why.

    python tests/differential/judge_run.py --native PYTHON --mistakes 3
    python tests/differential/judge_run.py --native PYTHON --packages algorithms-1.0.1/algorithms:algorithms-1.0.1/tests

Prints a table by source and a table by cause, and writes each pair to `--out`. PYTHON needs pytest for the tests of
packages. Ends with status 1 if a difference has no cause.
"""

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

from judged_packages import package_cases
from judged_programs import UNEXPLAINED, Case, compared, described, human_eval, mbpp, with_calls, wrong_programs
from native_judge import NativeJudge
from torl.components.programs.judge import Judge
from torl_sandbox import SandboxPool

DATA = Path(__file__).parents[3] / "shared" / "data"


def sources(options: argparse.Namespace) -> Iterator[tuple[str, Sequence[Case]]]:
    """Yield the cases of each source."""
    random = Random(options.seed)
    published = {} if options.no_sets else {
        "HumanEval": list(human_eval(options.data / "humaneval.jsonl")),
        "MBPP": list(mbpp(options.data / "mbpp_sanitized.jsonl")),
    }  # fmt: skip
    for place in options.packages:
        source, _, tests = place.partition(":")
        published[Path(source).name] = list(package_cases(Path(source), Path(tests), Path(source).name))
    published = {name: random.sample(cases, min(options.limit, len(cases))) for name, cases in published.items()}
    for name, cases in published.items():
        yield name, cases
    if not options.no_sets:
        yield "MBPP, calls and input", list(with_calls(published["MBPP"]))
    for name, cases in published.items():
        yield f"{name}, one mistake", wrong_programs(cases, options.mistakes, random)


async def run(options: argparse.Namespace) -> int:
    """Compare all verdicts, and return the exit status."""
    causes: Counter[str] = Counter()
    print("| source | programs | pairs | pass on both | fail on both | differ |\n|---|---|---|---|---|---|", flush=True)
    with (
        NativeJudge(options.native, cpu_seconds=options.cpu_seconds, with_pytest=True) as native,
        SandboxPool(
            options.workers, wall_seconds=600, memory_bytes=1 << 30, output_bytes=64 << 20, result_cache_bytes=0
        ) as pool,
        options.out.open("w") as out,
    ):
        judge = Judge(pool, cpu_seconds=2 * options.cpu_seconds)
        await judge.start()
        for name, cases in sources(options):
            if not name.startswith(options.only or ""):
                continue
            found: Counter[str] = Counter()
            async for pair in compared(cases, judge, native):
                causes[pair.cause] += 1
                found["differ" if pair.cause else pair.native if pair.native == "passed" else "failed"] += 1
                print(json.dumps({"source": name, **described(pair)}), file=out, flush=True)
            columns = (len(cases), found.total(), found["passed"], found["failed"], found["differ"])
            print(f"| {name} | {' | '.join(map(str, columns))} |", flush=True)
    print("\n| cause | pairs |\n|---|---|")
    for cause, count in causes.most_common():
        print(f"| {cause or 'equal verdicts'} | {count} |")
    return int(causes[UNEXPLAINED] > 0)


def main() -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="Public programs judged by torl and natively.")
    parser.add_argument("--native", type=Path, default=Path(sys.executable), help="a CPython, near the guest's version")
    parser.add_argument("--data", type=Path, default=DATA, help="directory of humaneval.jsonl and mbpp_sanitized.jsonl")
    parser.add_argument("--only", help="the sources whose names begin so")
    parser.add_argument("--no-sets", action="store_true", help="the packages alone")
    parser.add_argument("--packages", nargs="*", default=[], metavar="SOURCE:TESTS", help="directories of packages")
    parser.add_argument("--mistakes", type=int, default=3, help="wrong programs of each (default %(default)s)")
    parser.add_argument("--limit", type=int, default=10**6, help="programs of each source (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cpu-seconds", type=int, default=2, help="natively; twice that in the sandbox")
    parser.add_argument("--out", type=Path, default=Path("verdicts.jsonl"))
    return asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
