"""A package's own tests in the sandbox and on a CPython of this machine that has the same version: which differ.

    python tests/differential/package_suite.py --native PYTHON --package sympy --under core/tests
    python tests/differential/package_suite.py --native PYTHON --package numpy --under lib/tests --show 40

The test files are those of the native package. Both sides run them with the same small stand-in for pytest; tests that
fail on both (they need a fixture, a file, a compiler) say nothing and are only counted.
"""

import argparse
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

from comparison import seen
from native import NativePython
from torl_sandbox import SandboxPool

SHIM = Path(__file__).with_name("pytest_shim.py").read_text(encoding="utf-8")
PROGRAM = """
import sys, types
pytest = types.ModuleType("pytest")
exec({shim!r}, pytest.__dict__)
sys.modules["pytest"] = pytest
tests = types.ModuleType({name!r})
tests.__file__, tests.__package__ = "tests.py", {package!r}
sys.modules[{name!r}] = tests
exec(compile({source!r}, "tests.py", "exec"), tests.__dict__)
pytest.run_tests(tests.__dict__)
"""


def ends(stdout: str) -> dict[str, str]:
    """From the name of a test to how it ended."""
    lines = (line.partition("\t") for line in stdout.splitlines() if "\t" in line)
    return {name: end for name, _, end in lines}


def main() -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="Run a package's own tests in the sandbox and natively.")
    parser.add_argument("--native", type=Path, default=Path(sys.executable), help="a CPython with the package")
    parser.add_argument("--package", required=True)
    parser.add_argument("--under", default="", help="directory of tests, within the package (default: all)")
    parser.add_argument("--files", default="test_*.py", help="which files (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=60, help="for a file (default %(default)g)")
    parser.add_argument("--show", type=int, default=0, help="tests to print that end otherwise in the sandbox")
    options = parser.parse_args()
    where = f"import json, {options.package} as p; print(json.dumps(p.__path__[0]))"
    root = Path(json.loads(subprocess.check_output([options.native, "-c", where])))
    total: Counter[str] = Counter()
    different: list[str] = []
    with (
        NativePython(options.native, seconds=options.seconds) as native,
        SandboxPool(
            1, cpu_seconds=options.seconds, wall_seconds=900, memory_bytes=1 << 30, result_cache_bytes=0
        ) as pool,
    ):
        print(
            "| file | alike | otherwise in the sandbox | fail on both | not run here |\n|---|---|---|---|---|",
            flush=True,
        )
        for file in sorted((root / options.under).rglob(options.files)):
            name = ".".join((options.package, *file.relative_to(root).with_suffix("").parts))
            code = PROGRAM.format(
                shim=SHIM, name=name, package=name.rpartition(".")[0], source=file.read_text(encoding="utf-8")
            )
            here, there = ends(native.run([code])[0].stdout), ends(seen(pool.run(code)).stdout)
            found = Counter(_verdict(end, there.get(test)) for test, end in here.items())
            total += found
            different += [
                f"{name} {test}: {there[test]}"
                for test, end in here.items()
                if _verdict(end, there.get(test)) == "otherwise"
            ]
            columns = (found[key] for key in ("alike", "otherwise", "both fail", "not run here"))
            print(f"| {name} | {' | '.join(map(str, columns))} |", flush=True)
    print(f"\n{dict(total)}\n" + "\n".join(different[: options.show]))
    return 0


def _verdict(native: str, guest: str | None) -> str:
    if guest is None:
        return "not run here"
    if native in ("passed", "skipped"):
        return "alike" if native == guest else "otherwise"
    return "both fail" if guest not in ("passed", "skipped") else "alike"


if __name__ == "__main__":
    sys.exit(main())
