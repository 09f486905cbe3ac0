"""The outcome reward of programs: the tests of a problem, which the program never sees."""

import asyncio
import hashlib
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from torl.base.component import RunContext
from torl.base.options import PositiveInt, Section
from torl.base.types import Grade, Group, Trajectory
from torl.components.programs import TestStatus, TestSuite, TestVerdict
from torl.components.programs.forms import input_size
from torl.components.programs.judge_host import JudgeHost, suite_of
from torl.components.programs.submission import find_program
from torl.components.rewards.reward import Reward


class TestsOptions(Section):
    """Options of the reward "tests"."""

    __test__ = False  # no test of pytest

    correct: float = 1.0
    """Reward of a program that passes all tests."""
    wrong: float = -1.0
    """Reward of a program that passes none, and of a response without a program."""
    score: Literal["all", "fraction"] = "all"
    """Whether a program that passes only some tests is wrong, or gets its fraction of the way from `wrong` to
    `correct`."""
    max_tests: PositiveInt | None = None
    """Number of tests of a problem to run. Unset runs all."""
    choose: Literal["first", "random", "longest"] = "longest"
    """The tests to run of a problem with more: the first, random ones of each step's group, or those with the longest
    input, which DeepCoder takes for the hardest."""


class TestsReward(Reward):
    """Rewards the program of a response if it passes the tests of its problem, in a separate sandbox.

    Equal programs of a group are judged once. A failure of the sandbox stops the run: it is not a verdict.
    """

    __test__ = False

    def __init__(self, options: TestsOptions | None = None) -> None:
        self.options = options or TestsOptions()
        self._judges = JudgeHost()
        self._counts: Counter[str] = Counter()

    async def start(self, context: RunContext) -> None:
        """Start the sandbox; on a cluster, on every node.

        Raises:
            SandboxError: The workers do not start, or fail their self-test.
        """
        await self._judges.start(context)

    async def check(self) -> None:
        await self._judges.check()

    async def close(self) -> None:
        await self._judges.close()

    def metrics(self) -> Mapping[str, float]:
        """Return the number of programs by the status of the first test that they failed."""
        return {f"programs/{status}": count for status, count in self._counts.items()}

    async def grade(self, group: Group) -> list[Grade]:
        """Return one grade for each trajectory.

        Raises:
            RewardError: The problem has no tests.
            SandboxError: The sandbox failed.
        """
        suite = suite_of(group.prompt.problem)
        tests = self._chosen(suite, group)
        programs = [find_program(trajectory.answer_text) for trajectory in group.trajectories]
        distinct = [program for program in dict.fromkeys(programs) if program is not None]
        judged = await asyncio.gather(*(self._judged(program, suite, tests) for program in distinct))
        verdicts = dict(zip(distinct, judged, strict=True))
        return [
            self._grade(trajectory, program, [] if program is None else verdicts[program])
            for trajectory, program in zip(group.trajectories, programs, strict=True)
        ]

    async def _judged(self, program: str, suite: TestSuite, tests: Sequence[int]) -> list[TestVerdict]:
        whole = self.options.score == "all"
        verdicts = await self._judges.judge.judge(program, suite, tests=tests, stop_at_failure=whole)
        return [verdicts[index] for index in tests]

    def _chosen(self, suite: TestSuite, group: Group) -> Sequence[int]:
        """Return the indices of the tests to run, in their order."""
        count, limit = len(suite.tests), self.options.max_tests
        if limit is None or count <= limit or self.options.choose == "first":
            return range(min(count, limit or count))
        if self.options.choose == "random":
            key = f"{group.trajectories[0].group_id}/{group.prompt.problem.id}"
            drawn = random.Random(hashlib.blake2b(key.encode(), digest_size=8).digest())
            return sorted(drawn.sample(range(count), limit))
        return sorted(sorted(range(count), key=lambda index: -input_size(suite.tests[index]))[:limit])

    def _grade(self, trajectory: Trajectory, program: str | None, verdicts: Sequence[TestVerdict]) -> Grade:
        options = self.options
        passed = sum(verdict.status is TestStatus.PASSED for verdict in verdicts)
        correct = program is not None and passed == len(verdicts)
        failed = [(index, each) for index, each in enumerate(verdicts, start=1) if each.status not in _PASSED]
        status, detail = "passed" if correct else "no_program", ""
        if failed:
            index, first = failed[0]
            status = first.status.value
            detail = f"{status}: test {index} of {len(verdicts)}{first.message and f': {first.message}'}"
        self._counts[status] += 1
        share = float(correct) if options.score == "all" or not verdicts else passed / len(verdicts)
        unjudged = any(verdict.status is TestStatus.NOT_JUDGED for verdict in verdicts)
        reward = options.wrong + (options.correct - options.wrong) * share
        return Grade(reward, correct, program, "error" if unjudged and not correct else None, detail=detail)


_PASSED: Final = (TestStatus.PASSED, TestStatus.NOT_RUN)
