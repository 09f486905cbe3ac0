"""Judge a program by the tests of a problem, in the sandbox. Expected values stay out of the program's reach.

Output and results are compared here. Code with assertions runs in a separate guest: `code_judge`.
"""

import asyncio
import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from torl.components.programs.code_judge import MAX_TOGETHER, judge_code
from torl.components.programs.guest.transfer import MARK, TransferError, dumps, encode
from torl.components.programs.harness import Harnesses, ProgramRunner, compile_harnesses
from torl.components.programs.output import equal_output, equal_values
from torl.components.programs.reports import ReportError, read_value
from torl.components.programs.suites import CallTest, CodeTest, InputTest, TestSuite
from torl.components.programs.verdicts import TestStatus, TestVerdict, failed, parsed, raised, shortened
from torl_sandbox import Execution, OutcomeStatus

_MAX_WAVE: Final = 16
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
            stop_at_failure: Whether tests after the first failed one do not count. They start in waves of 1, 2, 4, 8,
                then 16 tests, and no wave starts after a failure.

        Raises:
            SandboxError: The sandbox failed, which says nothing about the program.
        """
        verdicts = [TestVerdict(TestStatus.NOT_RUN)] * len(suite.tests)
        steps = _together(suite, range(len(suite.tests)) if tests is None else tests)
        size = 1 if stop_at_failure else len(steps)
        while steps:
            wave, steps = steps[:size], steps[size:]
            size = min(2 * size, _MAX_WAVE) if stop_at_failure else size
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(self._run(program, suite, step)) for step in wave]
            except ExceptionGroup as errors:
                raise errors.exceptions[0] from None
            for step, task in zip(wave, tasks, strict=True):
                for index, verdict in zip(step, task.result(), strict=True):
                    verdicts[index] = verdict
                    if stop_at_failure and verdict.status is not TestStatus.PASSED:
                        return verdicts
        return verdicts

    async def _run(self, program: str, suite: TestSuite, step: Sequence[int]) -> list[TestVerdict]:
        """Return the verdicts of a test, or of tests with code."""
        match suite.tests[step[0]]:
            case InputTest() as test:
                return [await self._run_with_input(program, suite, test)]
            case CallTest() as test:
                return [await self._run_call(program, suite, test)]
            case CodeTest():
                return await self._run_code(program, suite, [suite.tests[index] for index in step])

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
        call = ["apply", [{"yours": 0}, test.function, arguments]]
        done, [reports] = await self._reports(program, suite, [[call]])
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

    async def _run_code(self, program: str, suite: TestSuite, tests: Sequence[Any]) -> list[TestVerdict]:
        assert self._harnesses is not None
        return await judge_code(
            tests,
            self._harnesses,
            self._runner,
            functools.partial(self._reports, program, suite),
            test_seconds=self._cpu_seconds,
            program_seconds=self._limits(suite)["cpu_seconds"],
        )

    async def _reports(
        self, program: str, suite: TestSuite, groups: Sequence[Sequence[Any]]
    ) -> tuple[Execution, list[list[str]]]:
        """Run a program with each group of operations, and return the reports as JSON: of it, and of each operation."""
        assert self._harnesses is not None
        sent = dumps(groups)
        harness = self._harnesses.program if '"mine":' in sent else self._harnesses.plain
        given = f'{{"program":{dumps(program)},"setup":{dumps(suite.prelude)},"groups":{sent}}}'
        done = await harness.run(self._runner, given, **self._limits(suite))
        reports: list[list[str]] = [[] for _ in groups]
        if len(done.stdout) > _MAX_REPORTED:
            done = replace(done, status=OutcomeStatus.OUTPUT_LIMIT)
        for line in done.stdout[:_MAX_REPORTED].split("\n")[:-1]:
            place, _, report = line.removeprefix(MARK).partition(" ")
            for index, (found, messages) in enumerate(zip(reports, groups, strict=True)):
                if line.startswith(MARK) and place == f"{index}.{len(found)}" and len(found) <= len(messages):
                    found.append(report)
        return done, reports


def _together(suite: TestSuite, indices: Sequence[int]) -> list[list[int]]:
    """Return the indices of tests, those of neighbors with code together, which costs less."""
    steps: list[list[int]] = []
    for index in indices:
        is_code = isinstance(suite.tests[index], CodeTest)
        if steps and is_code and isinstance(suite.tests[steps[-1][0]], CodeTest) and len(steps[-1]) < MAX_TOGETHER:
            steps[-1].append(index)
        else:
            steps.append([index])
    return steps


def _refuse(value: object) -> Any:
    raise TransferError(f"an argument is a {type(value).__name__}, which cannot cross")
