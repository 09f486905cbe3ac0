"""Programs of public sets with their tests: how torl's judge and a CPython of this machine judge them."""

import ast
import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from native_judge import NOT_RUN, PASSED, SKIPPED, NativeJudge
from program_mutations import mutants
from torl.components.programs.judge import Judge, TestStatus, TestVerdict
from torl.components.programs.suites import CallTest, CodeTest, InputTest, TestSuite, assertion_tests

AT_ONCE = 8
UNEXPLAINED = "UNEXPLAINED"
KNOWN = {
    "algorithms/test_polynomial": "the program depends on the order of a set, whose hashes have 32 bits in the guest"
}
READ_AND_PRINT = "\nimport ast, sys\nprint({function}(*ast.literal_eval(sys.stdin.read())))\n"


@dataclass(frozen=True, slots=True)
class Case:
    """A program with tests of a problem. Of a wrong one, the tests after the first failure are not run."""

    name: str
    program: str
    suite: TestSuite
    is_wrong: bool = False


@dataclass(frozen=True, slots=True)
class Pair:
    """A program with one test, and both verdicts."""

    case: Case
    index: int
    ours: TestVerdict
    native: str
    message: str

    @property
    def cause(self) -> str:
        """The reason for which the verdicts differ; empty where they agree."""
        if self.native == SKIPPED:
            return "the test skips itself"
        if self.ours.status is TestStatus.NOT_JUDGED:
            return f"not judged: {re.sub(r'[0-9]+|: .*', '', self.ours.message)[:80]}"
        if (self.ours.status is TestStatus.PASSED) == (self.native == PASSED):
            return ""
        if NOT_RUN in (self.ours.status, self.native):
            return "an earlier test of the program differs"
        known = [cause for name, cause in KNOWN.items() if self.case.name.startswith(name)]
        if known:
            return known[0]
        test = self.case.suite.tests[self.index]
        if isinstance(test, CodeTest) and test.unit[0] == "check" and "def " in test.setup:
            return "a mistake in a helper of the problem, which the test has itself"
        if self.native != PASSED and isinstance(test, InputTest) and "." in test.stdout:
            return "numbers are equal within 1e-6"
        return UNEXPLAINED


def human_eval(file: Path) -> Iterator[Case]:
    """Yield the canonical programs of HumanEval."""
    for row in map(json.loads, file.read_text().splitlines()):
        tree = ast.parse(f"{row['prompt']}    pass\n")
        tree.body = [each for each in tree.body if getattr(each, "name", None) != row["entry_point"]]
        test = CodeTest(row["test"], ("check", row["entry_point"]), ast.unparse(tree), (row["entry_point"],))
        yield Case(row["task_id"], row["prompt"] + row["canonical_solution"], TestSuite((test,)))


def mbpp(file: Path) -> Iterator[Case]:
    """Yield the canonical programs of MBPP, with the imports that its published judge makes."""
    for row in map(json.loads, file.read_text().splitlines()):
        tests = assertion_tests(row["test_list"], row["code"], row["test_setup_code"] or "")
        yield Case(f"MBPP/{row['task_id']}", row["code"], TestSuite(tests, prelude="import math\n"))


def with_calls(cases: Iterable[Case]) -> Iterator[Case]:
    """Yield the programs whose assertions are calls with data: tested by results, and by what they print."""
    for case in cases:
        calls = [call for test in case.suite.tests if isinstance(test, CodeTest) for call in _calls(test.code)]
        calls = [each for each in calls if each.function == calls[0].function]
        if calls:
            suite = replace(case.suite, tests=tuple(calls))
            yield replace(case, name=f"{case.name} calls", suite=suite)
            program = case.program + READ_AND_PRINT.format(function=calls[0].function)
            reading = tuple(InputTest(repr(tuple(each.arguments)), f"{each.expected}\n") for each in calls)
            yield Case(f"{case.name} input", program, replace(case.suite, tests=reading))


def _calls(code: str) -> Iterator[CallTest]:
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Assert(ast.Compare(ast.Call(ast.Name(name), arguments, []), [ast.Eq()], [expected])) if (
                name != "candidate"
            ):
                try:
                    values = [ast.literal_eval(each) for each in (*arguments, expected)]
                    crossed = json.loads(json.dumps(values))
                except (ValueError, TypeError):
                    continue
                if repr(crossed) == repr(values):  # no tuples, nor keys that are numbers
                    yield CallTest(name, values[:-1], values[-1])


def wrong_programs(cases: Sequence[Case], count: int, random: Random) -> list[Case]:
    """Return each program with one mistake, up to `count` times."""
    return [
        Case(f"{case.name} mistake {number}", program, case.suite, is_wrong=True)
        for case in cases
        for number, program in enumerate(mutants(case.program, count, random))
    ]


async def compared(cases: Sequence[Case], judge: Judge, native: NativeJudge) -> AsyncIterator[Pair]:
    """Judge programs on both sides, and yield each pair that was run on either."""
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as thread:

        async def both(case: Case) -> tuple[Case, list[TestVerdict], list[tuple[str, str]]]:
            def natively() -> list[tuple[str, str]]:
                return native.judge(
                    case.program, case.suite.tests, prelude=case.suite.prelude, stop_at_failure=case.is_wrong
                )

            there = loop.run_in_executor(thread, natively)
            ours = await judge.judge(case.program, case.suite, stop_at_failure=case.is_wrong)
            return case, ours, await there

        for start in range(0, len(cases), AT_ONCE):
            for case, ours, there in await asyncio.gather(*map(both, cases[start : start + AT_ONCE])):
                for index, (verdict, (status, message)) in enumerate(zip(ours, there, strict=True)):
                    if (verdict.status, status) != (TestStatus.NOT_RUN, NOT_RUN):
                        yield Pair(case, index, verdict, status, message)


def described(pair: Pair) -> dict[str, Any]:
    """Return what there is to read about a pair."""
    test = pair.case.suite.tests[pair.index]
    return {
        "name": pair.case.name,
        "test": pair.index,
        "kind": type(test).__name__,
        "unit": list(getattr(test, "unit", ())),
        "ours": pair.ours.status.value,
        "message": pair.ours.message,
        "native": pair.native,
        "native message": pair.message,
        "cause": pair.cause,
        "program": pair.case.program if pair.cause else "",
    }
