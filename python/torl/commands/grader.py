"""Compare answers with references, one pair or many, also for other programs.

torl grade REFERENCE ANSWER                compare an answer with its reference
torl grader grade [FILE]                   grade lines of {"reference", "answer"}, which get "correct"
torl grader serve [--port 8090]            serve POST /grade with {"reference", "answer"}, or a list of them
torl grader audit PACKAGE.MODULE:NAME      find wrong responses that a reward function rewards
"""

import argparse
import asyncio
import importlib
import json
import re
import sys
from collections.abc import Sequence
from itertools import islice
from typing import Any

from torl.base.errors import ConfigError, DataError, RewardError
from torl.base.inputs import parse_json
from torl.base.options import load_object
from torl.base.runtime.processes.supervision import run_until_done
from torl.commands.command import reports_errors
from torl.components.data import load_problems
from torl.components.grading.grader import Grader
from torl.components.rewards.probes import as_reward_function, audit
from torl_sandbox.servers.settings import ServerSettings, add_options, exit_at_sigterm, read_options

PROGRAM = "torl grader"
_BATCH_SIZE = 1000  # lines


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status, which is 3 if `audit` has findings."""
    options = _parser().parse_args(arguments)
    if options.command == "audit":
        return _audit(options)
    if options.command == "grade":
        return run_until_done(_grade(options))
    exit_at_sigterm()
    _serve(options)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(PROGRAM, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    grade = commands.add_parser("grade", help="grade pairs of a file or of standard input")
    grade.add_argument("file", nargs="?", help="JSON lines (default: standard input)")
    serve = commands.add_parser("serve", help="grade pairs over HTTP")
    add_options(serve, ServerSettings, ("host", "port"))
    serve.set_defaults(port=8090)
    for each in (grade, serve):
        each.add_argument("--workers", type=int, default=2, help="grader processes (default: %(default)s)")
        each.add_argument(
            "--timeout-seconds", type=float, default=2.0, help="CPU time of a pair, in seconds (default: %(default)s)"
        )
    probe = commands.add_parser("audit", help="probe a reward function for wrong responses that it rewards")
    probe.add_argument(
        "function",
        metavar="PACKAGE.MODULE:NAME",
        help="function (response, reference) -> reward, or one of verl or TRL",
    )
    probe.add_argument(
        "--problems", default="torl:demo/problems/heldout.jsonl", help="problem file (default: %(default)s)"
    )
    probe.add_argument("--count", type=int, default=5, help="number of problems (default: %(default)s)")
    return parser


def _grader(options: argparse.Namespace) -> Grader:
    try:
        return Grader(options.workers, options.timeout_seconds)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _serve(options: argparse.Namespace) -> None:
    try:
        server = importlib.import_module("torl.commands.grader_server")
    except ModuleNotFoundError as error:
        raise ConfigError(f"{error.name} is not installed: pip install 'torl[serve]'") from error
    server.serve(_grader(options), read_options(ServerSettings, options))


async def _grade(options: argparse.Namespace) -> None:
    try:
        file = sys.stdin.buffer if options.file is None else await asyncio.to_thread(open, options.file, "rb")
    except OSError as error:
        raise DataError(f"{options.file}: cannot be read: {error.strerror}") from error
    with file:
        async with _grader(options) as grader:
            invalid, lines = 0, enumerate(file, start=1)
            while rows := [_row(number, line) for number, line in islice(lines, _BATCH_SIZE)]:
                valid = [row for row in rows if "error" not in row]
                verdicts = iter(await grader.grade_all((str(row["reference"]), str(row["answer"])) for row in valid))
                for row in rows:
                    if "error" in row:
                        invalid += 1
                    else:
                        verdict = next(verdicts)
                        row |= {"correct": verdict.correct, "failure": verdict.failure}
                    print(json.dumps(row), flush=True)
    if invalid:
        raise DataError(f'{invalid} lines are not {{"reference": text, "answer": text}}; see their "error"')


def _row(number: int, line: bytes) -> dict[str, Any]:
    """Parse a pair of texts or numbers. A row with "error" stands for another line."""
    try:
        row = parse_json(line)
        if all(
            isinstance(value, str | int | float) and not isinstance(value, bool)
            for value in (row["reference"], row["answer"])
        ):
            return {name: value for name, value in row.items() if name != "error"}
        reason = "reference and answer must be text or numbers"
    except ValueError as error:
        reason = f"not valid JSON: {error}"  # also in another encoding
    except (KeyError, TypeError):
        reason = "must be an object with reference and answer"
    return {"line": number, "error": reason}


def _audit(options: argparse.Namespace) -> int:
    try:
        reward = load_object(options.function)
        problems = load_problems(options.problems)[: options.count]
        findings = audit(as_reward_function(reward), [(problem.question, problem.answer) for problem in problems])
    except ValueError as error:
        raise ConfigError(str(error)) from error
    for finding in findings:
        print(f"{finding.kind}: {finding.response[:100]!r} for {finding.reference!r} {finding.what}")
    print(json.dumps({"problems": len(problems), "findings": len(findings)}), flush=True)
    return 3 if findings else 0


@reports_errors
def grade_pair(arguments: Sequence[str] | None = None) -> int:
    r"""Run `torl grade REFERENCE ANSWER`, as in `torl grade '\frac{1}{2}' 0.5`, and return the exit status.

    It is 0 for a correct answer, 1 for a wrong one.
    """
    parser = argparse.ArgumentParser(
        "torl grade",
        description="Compare an answer with its reference, mathematically. Many pairs: torl grader grade.",
    )
    parser.add_argument("reference", metavar="REFERENCE", type=str.strip, help="correct answer, in LaTeX or plain")
    parser.add_argument("answer", metavar="ANSWER", type=str.strip, help="answer to compare")
    parser.add_argument("--timeout-seconds", type=float, default=2.0, help="limit on CPU time (default %(default)g)")
    parser.add_argument("--exact", action="store_true", help="no decimal equals an irrational number or a third")
    words = sys.argv[1:] if arguments is None else arguments
    # argparse takes a word such as -\frac{1}{2} for an option, unless a space precedes it.
    options = parser.parse_args([f" {word}" if re.match("-(?!-|h$)", word) else word for word in words])
    try:
        with Grader(1, options.timeout_seconds, exact=options.exact) as grader:
            verdict = grader.grade(options.reference, options.answer)
    except ValueError as error:
        raise RewardError(str(error)) from error
    print(f"undecided: {verdict.failure}" if verdict.failure else "correct" if verdict.correct else "wrong")
    return 0 if verdict.correct else 1
