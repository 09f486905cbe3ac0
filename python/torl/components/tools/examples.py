"""The examples of a problem as a tool: runs a program on the tests that the question shows, and no other."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from torl.base.component import RunContext
from torl.base.errors import ToolUnavailableError
from torl.base.types import Outcome, OutcomeStatus, Problem
from torl.components.programs import CallTest, InputTest, Judge, Test, TestStatus, TestSuite
from torl.components.programs.judge_host import JudgeHost, suite_of
from torl.components.tools.python import CODE_DESCRIPTION, MISSING_CODE, code_argument, make_parameters
from torl.components.tools.tool import StatefulTool, ToolSession

_MAX_SHOWN = 400  # characters of an input or an output


class ExamplesTool(StatefulTool):
    """Runs a program on the public examples of its problem, and says for each what it did."""

    description = "Runs a Python program on the examples of the problem, and says which ones it solves."
    parameters: Mapping[str, Any] = make_parameters(CODE_DESCRIPTION)
    has_own_limits = True

    def __init__(self) -> None:
        self._judges = JudgeHost()

    async def start(self, context: RunContext) -> None:
        """Start the sandbox.

        Raises:
            SandboxError: The workers do not start, or fail their self-test.
        """
        await self._judges.start(context)

    async def check(self) -> None:
        await self._judges.check()

    async def close(self) -> None:
        await self._judges.close()

    def session(self, seed: int) -> ToolSession:
        raise ToolUnavailableError("the tool 'run_examples' needs the problem of its episode")

    def problem_session(self, problem: Problem, seed: int) -> ToolSession:
        return _ExamplesSession(self._judges.judge, suite_of(problem))


@dataclass(frozen=True, slots=True)
class _ExamplesSession(ToolSession):
    judge: Judge
    suite: TestSuite

    async def call(self, arguments: Mapping[str, Any]) -> Outcome:
        program = code_argument(arguments)
        if program is None:
            return MISSING_CODE
        tests = range(self.suite.public)
        verdicts = await self.judge.judge(program, self.suite, tests=tests)
        lines = []
        for index in tests:
            verdict, test = verdicts[index], self.suite.tests[index]
            passed = verdict.status is TestStatus.PASSED
            said = "passed" if passed else f"{verdict.status.replace('_', ' ')}: {verdict.message}"
            lines.append(f"example {index + 1}: {said}" + ("" if passed else _shown(test)))
        return Outcome(OutcomeStatus.OK, "\n".join(lines) or "the problem shows no examples")

    def fork(self) -> Self:
        return self


def _shown(test: Test) -> str:
    """Return what an example gives and expects, in lines."""
    match test:
        case InputTest(stdin, stdout):
            return f"\n  input: {_cut(stdin)}\n  expected: {_cut(stdout)}"
        case CallTest(function, arguments, expected):
            given = ", ".join(map(repr, arguments))
            return f"\n  call: {_cut(f'{function}({given})')}\n  expected: {_cut(repr(expected))}"
    return f"\n  test: {_cut(test.code)}"


def _cut(text: str) -> str:
    text = text.strip()
    return repr(text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}...")
