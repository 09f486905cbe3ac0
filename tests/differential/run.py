"""Generated programs in the sandbox and on a CPython of this machine: how many differ, and why.

    python tests/differential/run.py --programs 100000 --seed 1
    python tests/differential/run.py --programs 2000 --native /usr/bin/python3.13 --areas math,numpy --show 20

Prints a table by cause. Ends with status 1 if a difference has no cause, or one that silently computes wrongly.
"""

import argparse
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from random import Random

from causes import CAUSES, WRONG, causes_of
from comparison import Difference, differences
from corpus import corpus
from generation import AREAS, generate
from native import NativePython
from torl_sandbox import SandboxPool

VERSIONS = """
import sys, networkx, numpy, pandas, scipy, sympy
print(sys.version.split()[0], {m.__name__: m.__version__ for m in (networkx, numpy, pandas, scipy, sympy)})
"""


def main() -> int:
    """Run the command line; returns the exit status."""
    options = _options()
    began = time.monotonic()
    with (
        NativePython(options.native) as native,
        SandboxPool(options.workers, cpu_seconds=10, result_cache_bytes=0) as pool,
    ):
        areas = [area for area in AREAS if all(name in native.packages for name in area.packages)]
        areas = [area for area in areas if not options.areas or area.name in options.areas.split(",")]
        random = Random(options.seed)
        programs = [generate(random, areas) for _ in range(options.programs)]
        if not options.areas:
            programs += corpus()
        print(f"guest: {pool.run(VERSIONS).stdout}native: {native.executable} {native.version} {native.packages}")
        found: Counter[str] = Counter()
        printed: Counter[str] = Counter()
        for difference in differences(programs, native, pool):
            causes = causes_of(difference, partial(differences, native=native, pool=pool))
            # One that makes a program wrong counts before one that does not.
            cause = None if None in causes else min(causes, key=CAUSES.index)
            name = cause.name if cause else "UNEXPLAINED"
            found[name] += 1
            if (cause is None or name in options.also.split(",")) and printed[name] < options.show:
                printed[name] += 1
                _show(difference)
    _table(found, len(programs), time.monotonic() - began)
    kinds = {cause.name: cause.kind for cause in CAUSES}
    return int(any(kinds.get(name, WRONG) == WRONG for name in found))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare the sandbox with a CPython of this machine.")
    parser.add_argument("--programs", type=int, default=2000, help="how many to generate (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the generator (default 0)")
    parser.add_argument("--native", type=Path, help="the CPython to compare with (default: this one)")
    parser.add_argument("--areas", default="", help="names, with commas between (default: all, and the corpus)")
    parser.add_argument("--workers", type=int, default=1, help="processes of the sandbox (default 1)")
    parser.add_argument("--show", type=int, default=10, help="unexplained differences to print (default 10)")
    parser.add_argument("--also", default="", help="names of causes to print differences of, with commas between")
    return parser.parse_args()


def _show(difference: Difference) -> None:
    print(f"--- {difference.program.area}\n{difference.code.encode('utf-8', 'replace').decode()}")
    for name, observed in (("native", difference.native), ("guest", difference.guest)):
        print(f"  {name}: {observed.stdout[:600]!r} {observed.error_type} {observed.error_line}")


def _table(found: Counter[str], programs: int, seconds: float) -> None:
    total = found.total()
    print(f"\n{programs:,} programs in {seconds:.0f} s, {programs - total:,} alike ({1 - total / programs:.3%})\n")
    print("| cause | kind | programs | why |\n|---|---|---|---|")
    known = {cause.name: cause for cause in CAUSES}
    for name, count in found.most_common():
        cause = known.get(name)
        print(f"| {name} | {cause.kind if cause else ''} | {count:,} | {cause.reason if cause else ''} |")


if __name__ == "__main__":
    sys.exit(main())
