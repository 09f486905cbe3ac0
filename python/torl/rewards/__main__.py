"""The grader as a command, for programs that are not torl's.

python -m torl.rewards grade [FILE]                   lines of {"reference", "answer"} in, the same with "correct" out
python -m torl.rewards serve [--port 8090]            POST /grade with {"reference", "answer"}, or a list of them
python -m torl.rewards audit PACKAGE.MODULE:NAME      what a function (response, reference) -> reward pays wrongly
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from torl.data import load_problems
from torl.errors import ConfigError, DataError
from torl.options import load_object
from torl.rewards.grader import Grader
from torl.rewards.probes import audit
from torl.rewards.server import serve
from torl.runtime.processes.supervision import run_until_done

PROGRAM = "python -m torl.rewards"
_BATCH_SIZE = 1000  # lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status: of `audit`, 3 if it found something."""
    parser = argparse.ArgumentParser(PROGRAM, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    grade = commands.add_parser("grade", help="judge pairs of a file, or of standard input")
    grade.add_argument("file", nargs="?", help="JSON lines; standard input when unset")
    door = commands.add_parser("serve", help="judge pairs over HTTP")
    door.add_argument("--host", default="127.0.0.1")
    door.add_argument("--port", type=int, default=8090, help="0 for a free one, which is printed")
    for each in (grade, door):
        each.add_argument("--workers", type=int, default=2)
        each.add_argument("--timeout-seconds", type=float, default=2.0, help="CPU time of one pair")
    probing = commands.add_parser("audit", help="probe a reward function for what pays without being right")
    probing.add_argument("function", metavar="PACKAGE.MODULE:NAME")
    probing.add_argument("--problems", default="torl:demo/problems/heldout.jsonl")
    probing.add_argument("--count", type=int, default=5, help="problems to probe with")
    asked = parser.parse_args(arguments)
    if asked.command == "audit":
        return _audit(asked)
    return run_until_done(_grade(asked) if asked.command == "grade" else serve(_grader(asked), asked.host, asked.port))


def _grader(asked: argparse.Namespace) -> Grader:
    try:
        return Grader(asked.workers, asked.timeout_seconds)
    except ValueError as error:
        raise ConfigError(str(error)) from error


async def _grade(asked: argparse.Namespace) -> None:
    file = sys.stdin if asked.file is None else await asyncio.to_thread(open, asked.file, encoding="utf-8")
    with file:
        async with _grader(asked) as grader:
            batch: list[dict[str, Any]] = []
            for number, line in enumerate(file, start=1):
                batch.append(_row(number, line))
                if len(batch) == _BATCH_SIZE:
                    await _print_graded(grader, batch)
                    batch = []
            await _print_graded(grader, batch)


def _row(number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
        assert isinstance(row["reference"], str)
        assert isinstance(row["answer"], str)
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        raise DataError(f'line {number}: give {{"reference": text, "answer": text}}') from error
    return dict(row)


async def _print_graded(grader: Grader, rows: Iterable[dict[str, Any]]) -> None:
    rows = list(rows)
    verdicts = await grader.grade_all((row["reference"], row["answer"]) for row in rows)
    for row, verdict in zip(rows, verdicts, strict=True):
        print(json.dumps({**row, "correct": verdict.correct, "failure": verdict.failure}), flush=True)


def _audit(asked: argparse.Namespace) -> int:
    try:
        reward = load_object(asked.function)
        problems = load_problems(asked.problems)[: asked.count]
    except (ValueError, DataError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    findings = audit(reward, [(problem.question, problem.answer) for problem in problems])
    for finding in findings:
        print(f"{finding.kind}: {finding.response[:100]!r} for {finding.reference!r} {finding.what}")
    print(json.dumps({"problems": len(problems), "findings": len(findings)}), flush=True)
    return 3 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
