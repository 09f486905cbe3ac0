"""CPython's own tests in the sandbox: a table, file by file, and the failures by their reasons.

    python tests/differential/cpython_suite.py --tests /usr/lib/python3.11/test
    python tests/differential/cpython_suite.py --tests DIRECTORY --files 'test_math test_float' --failures

The tests are the machine's own copy (a source tree's Lib/test; Debian: libpython3.11-testsuite) and should be of the
guest's version: those of another one fail where the versions differ. They are given to the run as files. Tests that
need a process, a thread or a socket fail or are skipped with that as their reason.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from suite_files import DATA, FILES, reason
from torl_sandbox import OutcomeStatus, SandboxPool

# In the guest: runs what `NAMES` names, or lists the parts of it.
RUNNER = """
import io, json, re, sys, unittest
sys.argv = ["test"]
def parts(suite):
    for one in suite:
        yield from parts(one) if isinstance(one, unittest.TestSuite) else [one]
suite = unittest.defaultTestLoader.loadTestsFromNames({names!r})
if {listing!r}:
    print("\\n" + json.dumps([test.id() for test in parts(suite)]))
else:
    result = unittest.TestResult()
    stream, sys.stderr = sys.stdout, io.StringIO()
    sys.stdout = io.StringIO()
    suite.run(result)
    sys.stdout = stream
    def last(text):
        # What was compared may stand behind the line with the error.
        lines = [line.strip() for line in text.rstrip().splitlines()]
        errors = [line for line in lines if re.match(r"[\\w.]+(Error|Exception|Exit|Warning)\\b", line)]
        return (errors or lines)[-1]
    failed = [(test.id(), last(text)) for test, text in result.failures + result.errors]
    skipped = [why for test, why in result.skipped]
    bad = len(failed) + len(result.unexpectedSuccesses)
    print("\\n" + json.dumps([result.testsRun - bad - len(skipped), failed, skipped]))
"""


@dataclass(slots=True)
class Tally:
    """The results of the tests of one file."""

    passed: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


class Suite:
    """The tests of one directory, in one pool."""

    def __init__(self, directory: Path, pool: SandboxPool) -> None:
        self.directory = directory
        self.pool = pool
        self.support = dict(self._files("support")) | {"test/__init__.py": b""}

    def _files(self, name: str) -> Iterator[tuple[str, bytes]]:
        path = self.directory / name
        for file in [path] if path.is_file() else sorted(path.rglob("*")):
            if file.is_file() and file.suffix not in (".pyc", ".so"):
                yield f"test/{file.relative_to(self.directory)}", file.read_bytes()

    def tally(self, name: str) -> Tally | None:
        """Runs the file or package `name`; None if it is not there."""
        files = dict(self._files(f"{name}.py")) | dict(self._files(name))
        if not files:
            return None
        for other in DATA.get(name, ()):
            files |= dict(self._files(other))
        tally = Tally()
        self._run([f"test.{name}"], self.support | files, tally)
        return tally

    def _run(self, names: list[str], files: dict[str, bytes], tally: Tally) -> None:
        outcome = self.pool.run(RUNNER.format(names=names, listing=False), files=files)
        if outcome.status is OutcomeStatus.OK:
            passed, failed, skipped = json.loads(outcome.stdout.splitlines()[-1])
            tally.passed += passed
            tally.failed += [(name, line) for name, line in failed]
            tally.skipped += skipped
            return
        stopped = outcome.exception_line or str(outcome.status)
        parts = [] if len(names) == 1 and names[0].count(".") > 3 else self._parts(names, files)
        if len(parts) < 2:
            tally.failed.append((names[0], f"{outcome.status}: {stopped}"))
            return
        # One test that ends the run must not hide the others: halves of them, down to that one.
        middle = len(parts) // 2
        self._run(parts[:middle], files, tally)
        self._run(parts[middle:], files, tally)

    def _parts(self, names: list[str], files: dict[str, bytes]) -> list[str]:
        if len(names) > 1:
            return names
        outcome = self.pool.run(RUNNER.format(names=names, listing=True), files=files)
        found = json.loads(outcome.stdout.splitlines()[-1]) if outcome.ok else []
        return [name for name in found if not name.startswith("unittest.")]


def main() -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="Run CPython's own tests in the sandbox.")
    parser.add_argument("--tests", type=Path, required=True, help="the directory `test` of a CPython's library")
    parser.add_argument("--files", default=FILES, help="which, without .py, with spaces between")
    parser.add_argument("--cpu-seconds", type=float, default=60, help="for a file (default %(default)g)")
    parser.add_argument("--failures", action="store_true", help="print every failure")
    options = parser.parse_args()
    total: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    with SandboxPool(
        1, cpu_seconds=options.cpu_seconds, wall_seconds=900, memory_bytes=1 << 30, result_cache_bytes=0
    ) as pool:
        suite = Suite(options.tests, pool)
        print("| file | passed | failed | skipped |\n|---|---|---|---|", flush=True)
        for name in options.files.split():
            tally = suite.tally(name)
            if tally is None:
                continue
            print(f"| {name} | {tally.passed} | {len(tally.failed)} | {len(tally.skipped)} |", flush=True)
            total.update(passed=tally.passed, failed=len(tally.failed), skipped=len(tally.skipped), files=1)
            reasons.update(reason(line) for _, line in tally.failed)
            if options.failures:
                for test, line in tally.failed:
                    print(f"    {test}: {line[:300]}")
    print(f"\n{dict(total)}\n\n| reason of failures | tests |\n|---|---|")
    for why, count in reasons.most_common():
        print(f"| {why} | {count} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
