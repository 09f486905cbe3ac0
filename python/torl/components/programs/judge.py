"""Judge a program by the tests of a problem, in the sandbox. What is expected stays out of the program's reach.

Output and results are compared here. Code with assertions runs in a guest of its own, in passes: a pass records the
operations on the program, the program's guest executes them, and the next pass knows their results.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from torl.components.programs.guest.program_side import MARK
from torl.components.programs.guest.transfer import decode, dumps, encode
from torl.components.programs.harness import Harness, ProgramRunner, compile_harnesses, returned_text
from torl.components.programs.output import equal_output, equal_values
from torl.components.programs.suites import CallTest, CodeTest, InputTest, Test, TestSuite
from torl_sandbox import Execution, OutcomeStatus

_MAX_PASSES: Final = 200
_MAX_MESSAGE: Final = 500


class TestStatus(StrEnum):
    """How a program did in a test.

    Attributes:
        PASSED: As expected.
        WRONG: Another output, another result, or a failed assertion.
        EXCEPTION: The program raised an exception, ended early, or lacks what the test calls.
        TIMEOUT: It exceeded its time.
        MEMORY: It exceeded its memory.
        OUTPUT_LIMIT: It printed too much.
        CRASH: It ended the process that ran it, twice.
        NOT_JUDGED: The test itself failed, or does what cannot be judged. It says nothing about the program.
        NOT_RUN: An earlier test decided.
    """

    __test__ = False  # no test of pytest

    PASSED = "passed"
    WRONG = "wrong"
    EXCEPTION = "exception"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT_LIMIT = "output_limit"
    CRASH = "crash"
    NOT_JUDGED = "not_judged"
    NOT_RUN = "not_run"


@dataclass(frozen=True, slots=True)
class TestVerdict:
    """The verdict of a test, with the end of the message that explains a failure, and its CPU time."""

    __test__ = False

    status: TestStatus
    message: str = ""
    cpu_seconds: float = field(default=0.0, compare=False)


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
        self._harnesses: tuple[Harness, Harness] | None = None

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
        done = await self._runner.run_async(program, stdin=test.stdin, **self._limits(suite))
        if done.status is not OutcomeStatus.OK:
            return _failed(done)
        if suite.checker is not None:
            return await self._check(suite.checker, test, done)
        if equal_output(done.stdout, test.stdout):
            return TestVerdict(TestStatus.PASSED, cpu_seconds=done.cpu_seconds)
        return TestVerdict(TestStatus.WRONG, f"printed {_shortened(done.stdout)}", done.cpu_seconds)

    async def _check(self, checker: str, test: InputTest, done: Execution) -> TestVerdict:
        files = {"input.txt": test.stdin, "expected.txt": test.stdout, "output.txt": done.stdout}
        checked = await self._runner.run_async(checker, files=files, cpu_seconds=self._cpu_seconds)
        if checked.status is OutcomeStatus.OK:
            return TestVerdict(TestStatus.PASSED, cpu_seconds=done.cpu_seconds)
        if checked.exception_type == "SystemExit":
            return TestVerdict(TestStatus.WRONG, _shortened(checked.stdout), done.cpu_seconds)
        return TestVerdict(TestStatus.NOT_JUDGED, f"the checker failed: {checked.exception_line or checked.status}")

    async def _run_call(self, program: str, suite: TestSuite, test: CallTest) -> TestVerdict:
        values = [{"handle": 0}, test.function, encode(list(test.arguments), _no_handle)]
        done, replies = await self._replies(program, suite, [["apply", values]])
        reply = replies[-1] if replies else {}
        if "raised" in reply:
            return TestVerdict(TestStatus.EXCEPTION, _message(reply["raised"]), done.cpu_seconds)
        if len(replies) < 2:
            return _failed(done)
        try:
            result = decode(reply["value"], _Object)
        except (TypeError, ValueError, KeyError):  # forged
            return TestVerdict(TestStatus.WRONG, "the result cannot be read", done.cpu_seconds)
        if equal_values(result, test.expected):
            return TestVerdict(TestStatus.PASSED, cpu_seconds=done.cpu_seconds)
        return TestVerdict(TestStatus.WRONG, f"returned {_shortened(repr(result))}", done.cpu_seconds)

    async def _run_code(self, program: str, suite: TestSuite, test: CodeTest) -> TestVerdict:
        assert self._harnesses is not None
        known: list[Any] = []
        seconds = 0.0
        for _ in range(_MAX_PASSES):
            given = {
                "code": test.code,
                "setup": test.setup,
                "unit": test.unit,
                "names": test.names,
                "modules": test.modules,
                "classes": test.classes,
                "known": known,
                "speculative": True,
            }
            done = await self._harnesses[1].run(self._runner, dumps(given), cpu_seconds=self._cpu_seconds)
            text = returned_text(done)
            if text is None:
                reason = done.exception_line or done.status.value
                return TestVerdict(TestStatus.NOT_JUDGED, f"the test failed by itself: {reason}")
            played = json.loads(text)
            if played["obstacle"]:
                return TestVerdict(TestStatus.NOT_JUDGED, played["obstacle"])
            if not played["unknown"]:
                return _verdict(played, seconds)
            ran, replies = await self._replies(program, suite, played["operations"])
            seconds = ran.cpu_seconds
            if replies and "raised" in replies[0]:
                return TestVerdict(TestStatus.EXCEPTION, _message(replies[0]["raised"]), seconds)
            if not replies:
                return _failed(ran)
            missing = {"limit": _failed(ran).status.value}
            found = [*replies[1:], *[missing] * (len(played["operations"]) + 1 - len(replies))]
            known = [list(pair) for pair in zip(played["operations"], found, strict=True)]
        return TestVerdict(TestStatus.NOT_JUDGED, f"the test does not settle in {_MAX_PASSES} passes")

    async def _replies(
        self, program: str, suite: TestSuite, operations: Sequence[Any]
    ) -> tuple[Execution, list[dict[str, Any]]]:
        """Run a program and operations on it, and return the reports: of the program itself, and of each operation."""
        assert self._harnesses is not None
        given = {"program": program, "setup": suite.prelude, "operations": operations}
        done = await self._harnesses[0].run(self._runner, dumps(given), **self._limits(suite))
        replies: list[dict[str, Any]] = []
        for line in done.stdout.split("\n"):
            if line.startswith(MARK):
                try:
                    number, content = json.loads(line.removeprefix(MARK))
                except (ValueError, TypeError):
                    break
                if number != len(replies) or not isinstance(content, dict):
                    break
                replies.append(content)
        return done, replies[: len(operations) + 1]


_INTERPRETER_MIB = 177


class _Object:
    """An object of a program that is no data. Equals nothing."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.found = found

    def __repr__(self) -> str:
        return "an object of a class of its own"


def _no_handle(value: object) -> Any:
    raise TypeError(f"{type(value).__name__} is no data")


def _verdict(played: dict[str, Any], seconds: float) -> TestVerdict:
    message = played["message"][-_MAX_MESSAGE:]
    if played["limit"]:
        return TestVerdict(TestStatus(played["limit"]), message, seconds)
    if played["ended"] == "passed":
        return TestVerdict(TestStatus.PASSED, cpu_seconds=seconds)
    if played["ended"] == "exception" and not played["own"]:
        return TestVerdict(TestStatus.EXCEPTION, message, seconds)
    return TestVerdict(TestStatus.WRONG, message, seconds)


_OF_OUTCOME: Final = {
    OutcomeStatus.OK: TestStatus.EXCEPTION,  # it ended before it answered
    OutcomeStatus.ERROR: TestStatus.EXCEPTION,
    OutcomeStatus.TIMEOUT: TestStatus.TIMEOUT,
    OutcomeStatus.MEMORY: TestStatus.MEMORY,
    OutcomeStatus.OUTPUT_LIMIT: TestStatus.OUTPUT_LIMIT,
    OutcomeStatus.CRASH: TestStatus.CRASH,
}


def _failed(done: Execution) -> TestVerdict:
    message = done.exception_line or ("the program ended early" if done.ok else done.status.value)
    return TestVerdict(_OF_OUTCOME[done.status], message[-_MAX_MESSAGE:], done.cpu_seconds)


def _message(raised: dict[str, Any]) -> str:
    return f"{raised.get('name')}: {raised.get('text')}"[:_MAX_MESSAGE]


def _shortened(text: str) -> str:
    return repr(text if len(text) <= _MAX_MESSAGE else f"{text[:_MAX_MESSAGE]}...")
