"""Judge each problem with tests by its own solutions, in the sandbox: tests that these fail would teach nothing.

Verdicts are cached in solutions.jsonl, so that an interrupted command resumes.
"""

import asyncio
import hashlib
import json
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import IO, Any, Final

from torl.base.types.problems import SOLUTIONS, TESTS
from torl.components.programs import Judge, TestStatus, unpack_suite
from torl.components.programs.judge_host import make_judge_pool
from torl.run.display.console import Console
from torl.run.records.files import append_atomically, atomic_write
from torl_lab.curation.candidates import DroppedRows
from torl_lab.curation.problem_files import encode_rows

_BATCH_SIZE: Final = 64  # problems judged at once, and between writes of the cache
_NO_SOLUTION: Final = "no_solution"


async def keep_solved(
    problems: IO[bytes], count: int, selected: Any, dropped: DroppedRows, cache: Path, console: Console
) -> tuple[Counter[str], Counter[str]]:
    """Write the problems that one of their own solutions solves, and the problems that have no tests or no solutions.

    Args:
        problems: File with problems as JSON lines.
        count: Their number.
        selected: File that receives the problems that are kept.
        dropped: Receives the other problems, with "solution_wrong", "solution_timeout" and so on as the reason.
        cache: File with the verdicts of an earlier command.
        console: Console for progress.

    Returns:
        The numbers of kept problems by source; the numbers of problems with tests by verdict: "passed", "no_solution",
        or the reason.

    Raises:
        SandboxError: The sandbox failed. Verdicts so far are cached.
    """
    kept, verdicts = Counter[str](), Counter[str]()
    known = _read_cache(cache)
    problems.seek(0)
    with (
        make_judge_pool() as pool,
        console.progress("judging solutions", count) as wait,
    ):
        judge = Judge(pool)
        await judge.start()
        while lines := list(islice(problems, _BATCH_SIZE)):
            rows = [json.loads(line) for line in lines]
            keys = [hashlib.blake2b(line, digest_size=16).hexdigest() for line in lines]
            new = [index for index, row in enumerate(rows) if TESTS in row and keys[index] not in known]
            found = await asyncio.gather(*(_judge(judge, rows[index]) for index in new))
            fresh = {keys[index]: verdict for index, verdict in zip(new, found, strict=True)}
            append_atomically(cache, encode_rows({"problem": key, "verdict": each} for key, each in fresh.items()))
            known |= fresh
            for line, row, key in zip(lines, rows, keys, strict=True):
                wait.advance()
                reason, detail = known.get(key, ("passed", "")) if TESTS in row else ("passed", "")
                verdicts[reason] += TESTS in row
                if reason in ("passed", _NO_SOLUTION):
                    kept[str(row["source"])] += 1
                    selected.write(line)
                else:
                    dropped.add(row["id"], reason, detail)
    return kept, verdicts


async def _judge(judge: Judge, row: dict[str, Any]) -> tuple[str, str]:
    """Return "passed", "no_solution", or the reason and the message of the first failure of the first solution."""
    suite, first = unpack_suite(row[TESTS]), None
    for solution in row.get(SOLUTIONS, ()):
        verdicts = await judge.judge(solution, suite, stop_at_failure=True)
        failed = next((each for each in verdicts if each.status is not TestStatus.PASSED), None)
        if failed is None:
            return "passed", ""
        first = first or failed
    return (_NO_SOLUTION, "") if first is None else (f"solution_{first.status.value}", first.message)


def _read_cache(cache: Path) -> dict[str, tuple[str, str]]:
    """Read the verdicts of an earlier command, and drop an incomplete last line."""
    lines = cache.read_bytes().rpartition(b"\n")[0].splitlines() if cache.exists() else []
    with atomic_write(cache) as file:
        file.writelines(line + b"\n" for line in lines)
    return {row["problem"]: tuple(row["verdict"]) for row in map(json.loads, lines)}
