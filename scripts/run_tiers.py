"""`run_tiers.py [TIER ...]`: runs the tiers of tests one after the other, and keeps a table of them (`make test-all`).

A tier that fails stops no other. A second call continues: it runs the tiers that have not ended for the files as they
are. Any change of a file, committed or not, starts anew; only the two files of the table do not count. A tier that
cannot run on this machine has a row that says why.

Each result is a line of docs/evidence/tiers.jsonl; docs/evidence/tests.md shows the last one of each tier. The output
of a tier is in target/tiers. Exit status: 0 if all tiers passed that can run, else 1.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from tree_state import PAGE, RESULTS, commit, tree_hash

ROOT = Path(__file__).parents[1]
LOGS = "target/tiers"
PASSED, FAILED = "passed", "failed"
SESSION = re.compile(r"^=+ test session starts =+$", re.MULTILINE)
# The last line of a session of pytest, of the tests of a crate, and of the planted mistakes.
SUMMARY = re.compile(r"^=+ .* in [\d.]+s.* =+$", re.MULTILINE)
CRATE = re.compile(r"^test result: .*$", re.MULTILINE)
NOTICED = re.compile(r"^(\d+) of (\d+) killed: ", re.MULTILINE)
COLUMNS = {"passed": "passed", "failed": "failed", "error": "failed", "skipped": "skipped", "ignored": "skipped"}
HEAD = """# Tests by tier

`make test-all` runs the tiers in this order; each row is the last result of its tier. A commit is dirty if the files
differed from it. Of the mutants, "passed" counts the planted mistakes that a test noticed.

| tier | result | passed | failed | skipped | minutes | date | commit |
|---|---|---|---|---|---|---|---|
"""


def lacks_chromium() -> str:
    """Return why the pages of the viewer cannot be tested here, or an empty string."""
    return "" if shutil.which("chromium") else "no Chromium (apt-get install chromium)"


def lacks_gpu() -> str:
    """Return why tests on a GPU cannot run here, or an empty string."""
    if shutil.which("nvidia-smi") is None or subprocess.run(["nvidia-smi", "-L"], capture_output=True).returncode:
        return "no NVIDIA GPU"
    return "" if os.environ.get("GPU_PYTHON") else "GPU_PYTHON names no Python with requirements/gpu.txt"


@dataclass(frozen=True)
class Tier:
    """A target of the Makefile, and the function that returns why it cannot run here."""

    name: str
    target: str
    obstacle: Callable[[], str] = lambda: ""


TIERS = (
    Tier("default", "test"),
    Tier("slow", "test-slow"),
    Tier("topology", "test-topology"),
    Tier("peers", "test-peers"),
    Tier("interop", "test-interop"),
    Tier("browser", "test-browser", lacks_chromium),
    Tier("cluster", "test-cluster"),
    Tier("real", "test-real"),
    Tier("docs", "docs"),
    Tier("gpu", "test-gpu", lacks_gpu),
    Tier("mutants", "mutants"),
)


@dataclass(frozen=True)
class Result:
    """The result of a tier. `result` is "passed", "failed", or why its tests did not all run."""

    tier: str
    result: str
    passed: int
    failed: int
    skipped: int
    minutes: float
    date: str
    commit: str
    tree: str
    """Hash of the files that were tested."""


def run_tier(tier: Tier, root: Path, obstacle: str) -> Result:
    """Run a tier, unless there is an obstacle."""
    commit_now, tree = commit(root), tree_hash(root)
    date, start = datetime.now(UTC).strftime("%Y-%m-%d %H:%M"), time.monotonic()
    if obstacle:
        return Result(tier.name, f"cannot run here: {obstacle}", 0, 0, 0, 0.0, date, commit_now, tree)
    status, output = run_make(tier.target, root / LOGS / f"{tier.name}.log", root)
    summaries = [SUMMARY.findall(session)[-1:] for session in SESSION.split(output)[1:]]  # none of a killed session
    found = counts(output, [line for summary in summaries for line in summary])
    if tree_hash(root) != tree:
        result = "files were changed meanwhile"
    elif all(summaries) and found["failed" if status else "passed"]:
        result = FAILED if status else PASSED
    else:
        last_line = (output.splitlines() or ["no output"])[-1][:80].replace("|", "/")
        result = f"did not end: status {status}, {last_line}"
    minutes = round((time.monotonic() - start) / 60, 1)
    numbers = (found["passed"], found["failed"], found["skipped"], minutes)
    return Result(tier.name, result, *numbers, date, commit_now, tree)


def run_make(target: str, log: Path, root: Path) -> tuple[int, str]:
    """Run a target of the Makefile, show and keep its output, and return its exit status with the output."""
    log.parent.mkdir(parents=True, exist_ok=True)
    line = f"set -o pipefail; make --no-print-directory {target} 2>&1 | tee {shlex.quote(str(log))}"
    with subprocess.Popen(["bash", "-c", line], cwd=root, stdin=subprocess.DEVNULL, process_group=0) as process:
        try:
            status = process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGTERM)
            raise
    return status, log.read_text("utf-8", errors="replace")


def counts(output: str, summaries: Sequence[str]) -> Counter[str]:
    """Return how many tests passed, failed and were skipped in all parts of a tier."""
    found: Counter[str] = Counter()
    for line in (*summaries, *CRATE.findall(output)):
        for number, name in re.findall(r"(\d+) (passed|failed|skipped|ignored|error)", line):
            found[COLUMNS[name]] += int(number)
    for noticed, planted in NOTICED.findall(output):
        found.update(passed=int(noticed), failed=int(planted) - int(noticed))
    return found


def run_tiers(names: Sequence[str], tiers: Sequence[Tier] = TIERS, root: Path = ROOT) -> int:
    """Run the named tiers, or all, that have not ended for the files as they are; return the exit status."""
    if unknown := set(names) - {tier.name for tier in tiers}:
        print(
            f"there is no tier {min(unknown)!r}; there are: {', '.join(tier.name for tier in tiers)}", file=sys.stderr
        )
        return 2
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    is_right = True
    for tier in (tier for tier in tiers if not names or tier.name in names):
        tree, obstacle = tree_hash(root), tier.obstacle()
        before = next(
            (each for each in reversed(read_results(root)) if (each.tier, each.tree) == (tier.name, tree)), None
        )
        if before and (before.result in (PASSED, FAILED) or (obstacle and obstacle in before.result)):
            print(f"{tier.name}: {before.result} before, with the same files", flush=True)
            result = before
        else:
            result = run_tier(tier, root, obstacle)
            (root / RESULTS).parent.mkdir(parents=True, exist_ok=True)
            with (root / RESULTS).open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(result)) + "\n")
            (root / PAGE).write_text(page(read_results(root), tiers), encoding="utf-8")  # another call may have written
        is_right &= bool(obstacle) or result.result == PASSED
    print((root / PAGE).read_text("utf-8"))
    return int(not is_right)


def read_results(root: Path) -> list[Result]:
    """Return all results, in the order in which they came."""
    path = root / RESULTS
    return [Result(**json.loads(line)) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def page(results: Sequence[Result], tiers: Sequence[Tier] = TIERS) -> str:
    """Return the page with the last result of each tier."""
    last = {each.tier: each for each in results}
    rows = [last[tier.name] for tier in tiers if tier.name in last]
    return HEAD + "".join(
        f"| {each.tier} | {each.result} | {each.passed} | {each.failed} | {each.skipped} | {each.minutes:.1f} "
        f"| {each.date} | {each.commit} |\n"
        for each in rows
    )


if __name__ == "__main__":
    sys.exit(run_tiers(sys.argv[1:]))
