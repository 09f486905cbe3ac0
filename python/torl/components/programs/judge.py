"""Judge a program by the tests of a problem, in the sandbox. Expected values stay out of the program's reach.

Output and results are compared here. Code with assertions runs in a separate guest, in passes: a pass records the
operations on the program, the program's guest executes them, and the next pass knows their results.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from torl.components.programs.guest.transfer import MARK, TransferError, dumps, encode
from torl.components.programs.harness import Harnesses, ProgramRunner, compile_harnesses, returned_text
from torl.components.programs.output import equal_output, equal_values
from torl.components.programs.reports import ReportError, read_value
from torl.components.programs.suites import CallTest, CodeTest, InputTest, Test, TestSuite
from torl.components.programs.verdicts import TestStatus, TestVerdict, failed, of_pass, parsed, raised, shortened
from torl_sandbox import Execution, OutcomeStatus

_MAX_PASSES: Final = 200
_MAX_LIMITS: Final = 5  # CPU time of all passes together, in limits of a test
_MAX_REPORTED: Final = 16 << 20  # characters
_INTERPRETER_MIB: Final = 177
_SCRIPT: Final = "__import__('sys').set_int_max_str_digits(0)\nexec(compile({!r}, 'main.py', 'exec'))"
"""A program for `Judge`. References of public sets print integers with more than 4,300 digits."""


class Judge:
    """Judges programs. Call `start` first.

    Args:
        runner: Sandbox that runs programs and tests.
        cpu_seconds: CPU time of a test whose suite has no limit.
        time_factor: Factor of the limits of suites, which are made for faster machines than the sandbox.
        memory_mib: Memory of a test whose suite has no limit, in addition to the interpreter's own.
    """

    def __init__(
        self, runner: ProgramRunner, *, cpu_seconds: float = 10.0, time_factor: float = 4.0, memory_mib: int = 256
    ) -> None:
        self._runner = runner
        self._cpu_seconds = cpu_seconds
        self._time_factor = time_factor
        self._memory_mib = memory_mib
        self._harnesses: Harnesses | None = None

    async def start(self) -> None:
        """Compile the harnesses.

        Raises:
            SandboxError: The sandbox failed.
        """
        self._harnesses = await compile_harnesses(self._runner)

    async def judge(
        self, program: str, suite: TestSuite, *, tests: Sequence[int] | None = None, stop_at_failure: bool = False
    ) -> list[TestVerdict]:
        """Return the verdict of each test.

        Args:
            program: Source of the program.
            suite: Tests and limits.
            tests: Indices of the tests to run. None runs all. Others are not run.
            stop_at_failure: Whether to start no test after one that failed.

        Raises:
            SandboxError: The sandbox failed, which says nothing about the program.
        """
        verdicts = [TestVerdict(TestStatus.NOT_RUN)] * len(suite.tests)
        wanted = range(len(suite.tests)) if tests is None else tests
        failed = asyncio.Event()

        async def run(index: int) -> None:
            if not (stop_at_failure and failed.is_set()):
                verdicts[index] = await self._run(program, suite, suite.tests[index])
                if verdicts[index].status is not TestStatus.PASSED:
                    failed.set()

        if stop_at_failure:
            for index in wanted:
                await run(index)
        else:
            async with asyncio.TaskGroup() as group:
                for index in wanted:
                    group.create_task(run(index))
        return verdicts

    async def _run(self, program: str, suite: TestSuite, test: Test) -> TestVerdict:
        match test:
            case InputTest():
                return await self._run_with_input(program, suite, test)
            case CallTest():
                return await self._run_call(program, suite, test)
            case CodeTest():
                return await self._run_code(program, suite, test)

    def _limits(self, suite: TestSuite) -> dict[str, Any]:
        seconds = self._cpu_seconds if suite.cpu_seconds is None else suite.cpu_seconds * self._time_factor
        memory = self._memory_mib if suite.memory_mib is None else suite.memory_mib
        return {"cpu_seconds": seconds, "memory_bytes": min(memory + _INTERPRETER_MIB, 4096) << 20}

    async def _run_with_input(self, program: str, suite: TestSuite, test: InputTest) -> TestVerdict:
        done = await self._runner.run_async(_SCRIPT.format(program), stdin=test.stdin, **self._limits(suite))
        if done.status is not OutcomeStatus.OK:
            return failed(done)
        if suite.checker is not None:
            return await self._check(suite.checker, test, done)
        if equal_output(done.stdout, test.stdout):
            return TestVerdict(TestStatus.PASSED, cpu_seconds=done.cpu_seconds)
        return TestVerdict(TestStatus.WRONG, f"printed {shortened(repr(done.stdout))}", done.cpu_seconds)

    async def _check(self, checker: str, test: InputTest, done: Execution) -> TestVerdict:
        checked = await self._checked(checker, test, done.stdout)
        if checked.status is OutcomeStatus.OK:
            return TestVerdict(TestStatus.PASSED, cpu_seconds=done.cpu_seconds)
        # A checker that fails where the expected output is printed fails by itself.
        if checked.exception_type == "SystemExit" or (await self._checked(checker, test, test.stdout)).ok:
            return TestVerdict(TestStatus.WRONG, shortened(checked.stdout), done.cpu_seconds)
        return TestVerdict(TestStatus.NOT_JUDGED, f"the checker failed: {checked.exception_line or checked.status}")

    async def _checked(self, checker: str, test: InputTest, output: str) -> Execution:
        files = {"input.txt": test.stdin, "expected.txt": test.stdout, "output.txt": output}
        code = _SCRIPT.format(checker)
        return await self._runner.run_async(code, files=files, cpu_seconds=self._cpu_seconds)

    async def _run_call(self, program: str, suite: TestSuite, test: CallTest) -> TestVerdict:
        try:
            arguments = encode(list(test.arguments), _refuse)
        except TransferError as error:
            return TestVerdict(TestStatus.NOT_JUDGED, str(error))
        done, reports = await self._reports(program, suite, [["apply", [{"yours": 0}, test.function, arguments]]])
        report = parsed(reports[-1]) if reports else {}
        if "raised" in report:
            return raised(report["raised"], done.cpu_seconds)
        if len(reports) < 2:
            return failed(done)
        try:
            result = read_value(report.get("value"))
            is_equal = equal_values(result, test.expected)
        except (ReportError, RecursionError):  # forged
            return TestVerdict(TestStatus.WRONG, "the result cannot be read", done.cpu_seconds)
        if is_equal:
            return TestVerdict(TestStatus.PASSED, cpu_seconds=done.cpu_seconds)
        try:
            shown = shortened(repr(result))
        except (ValueError, RecursionError):
            shown = "what is too long to print"
        return TestVerdict(TestStatus.WRONG, f"returned {shown}", done.cpu_seconds)

    async def _run_code(self, program: str, suite: TestSuite, test: CodeTest) -> TestVerdict:
        assert self._harnesses is not None
        known: list[Any] = []
        seconds = spent = 0.0
        limit = endless = TestVerdict(TestStatus.TIMEOUT, "the operations of the test take too long")
        given = {name: getattr(test, name) for name in ("code", "setup", "unit", "names", "modules", "classes")}
        for _ in range(_MAX_PASSES):
            text = dumps({**given, "known": known})
            done = await self._harnesses.test.run(self._runner, text, cpu_seconds=self._cpu_seconds)
            returned = returned_text(done)
            if returned is None and known:  # what the program returned is too much for the test
                return failed(done)
            if returned is None:
                reason = done.exception_line or done.status.value
                return TestVerdict(TestStatus.NOT_JUDGED, f"the test failed by itself: {reason}")
            played = json.loads(returned)
            if played["obstacle"]:  # of the test itself, unless results of the program led to it
                return TestVerdict(TestStatus.WRONG if known else TestStatus.NOT_JUDGED, played["obstacle"])
            if not played["unknown"] and not played["suspended"]:
                return of_pass(played, limit, seconds)
            if spent > _MAX_LIMITS * self._limits(suite)["cpu_seconds"]:
                break
            messages = played["messages"]
            ran, reports = await self._reports(program, suite, messages)
            seconds = ran.cpu_seconds
            spent += done.cpu_seconds + ran.cpu_seconds
            if not reports:
                return failed(ran)
            if "raised" in (start := parsed(reports[0])):
                return raised(start["raised"], seconds)
            limit = failed(ran)
            found = [*reports[1:], *[None] * (len(messages) + 1 - len(reports))]
            known = [list(pair) for pair in zip(messages, found, strict=True)]
        return endless

    async def _reports(self, program: str, suite: TestSuite, messages: Sequence[Any]) -> tuple[Execution, list[str]]:
        """Run a program and operations on it, and return the reports as JSON: of the program, and of each operation."""
        assert self._harnesses is not None
        sent = dumps(messages)
        harness = self._harnesses.program if '"mine":' in sent else self._harnesses.plain
        given = f'{{"program":{dumps(program)},"setup":{dumps(suite.prelude)},"messages":{sent}}}'
        done = await harness.run(self._runner, given, **self._limits(suite))
        reports: list[str] = []
        if len(done.stdout) > _MAX_REPORTED:
            done = replace(done, status=OutcomeStatus.OUTPUT_LIMIT)
        for line in done.stdout[:_MAX_REPORTED].split("\n")[:-1]:
            number, _, report = line.removeprefix(MARK).partition(" ")
            if line.startswith(MARK) and number == str(len(reports)):
                reports.append(report)
        return done, reports[: len(messages) + 1]


def _refuse(value: object) -> Any:
    raise TransferError(f"an argument is a {type(value).__name__}, which cannot cross")
