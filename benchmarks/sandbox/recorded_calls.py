"""Execute the Python calls of trajectory files again with CPython, and compare what the sandbox printed.

    python -m benchmarks.sandbox.recorded_calls FILE...

Equal programs are executed once. Compared are the status (completed, exception, or still running at the limit),
everything that was printed to standard output, and the last line of an exception's traceback. The programs are a
model's and run **without a sandbox**, with the privileges of the caller: use a machine without secrets. The packages
that they import have to be installed, in the versions that the sandbox has.
"""

import argparse
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from torl.base.types import Outcome, OutcomeStatus
from torl.run.records.reading import read_trajectories


@dataclass(frozen=True, slots=True)
class End:
    """The end of a program.

    Attributes:
        status: "ok", "error" or "timeout".
        printed: Standard output.
        message: Last line of the traceback, of a program that ended with an exception.
    """

    status: str
    printed: str
    message: str = ""


def recorded_end(outcome: Outcome) -> End:
    """Return the end that the sandbox recorded."""
    details, status = outcome.details, outcome.status
    if status is not OutcomeStatus.ERROR:
        return End(status.value, "" if status is OutcomeStatus.TIMEOUT else str(details.get("stdout", "")))
    return End(status.value, str(details.get("stdout", "")), _last_line(str(details.get("stderr", ""))))


def execute(code: str, seconds: float) -> End:
    """Execute a program in a new process."""
    words = [sys.executable, "-P", "-c", code]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    try:
        ended = subprocess.run(
            words,
            capture_output=True,
            text=True,
            timeout=seconds,
            stdin=subprocess.DEVNULL,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return End("timeout", "")
    if ended.returncode == 0:
        return End("ok", ended.stdout)
    return End("error", ended.stdout, _last_line(ended.stderr))


def _last_line(text: str) -> str:
    return next(iter(text.strip().splitlines()[-1:]), "")


def main() -> None:
    """Print the number of programs by their end, and each one with a difference."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--seconds", type=float, default=20.0, help="limit of a program (default: %(default)s)")
    arguments = parser.parse_args()
    calls = [call for path in arguments.files for row in read_trajectories(path) for call in row.trajectory.tool_calls]
    recorded = {call.code: recorded_end(call.outcome) for call in calls if call.ran}
    counts: Counter[tuple[str, str]] = Counter()
    for code, expected in recorded.items():
        found = execute(code, arguments.seconds)
        counts[expected.status, "equal" if found == expected else "different"] += 1
        if found != expected:
            print(f"{code}\n  sandbox: {expected}\n  CPython: {found}\n")
    print(f"{len(calls)} calls, {len(recorded)} different programs")
    for (status, agreement), count in sorted(counts.items()):
        print(f"{status}: {count} {agreement}")


if __name__ == "__main__":
    main()
