"""A judge with its sandbox, for the components of a run; and the tests of a problem."""

from typing import Final

from torl.base.component import RunContext
from torl.base.errors import RewardError, SandboxError
from torl.base.types import Problem
from torl.base.types.problems import TESTS
from torl.components.programs.forms import unpack_suite
from torl.components.programs.judge import Judge
from torl.components.programs.sandbox_host import ClusterSandbox, SandboxHost
from torl.components.programs.suites import TestSuite
from torl_sandbox import SandboxPool

# Limits of the pool, below which each test has its own.
_MEMORY_BYTES: Final = 4 << 30
_CPU_SECONDS: Final = 600.0
_OUTPUT_BYTES: Final = 64 << 20


class JudgeHost:
    """A judge and its sandbox, which it starts and closes."""

    def __init__(self) -> None:
        self._sandbox: SandboxHost | ClusterSandbox | None = None
        self._judge: Judge | None = None

    @property
    def judge(self) -> Judge:
        """The judge.

        Raises:
            SandboxError: The host has not been started.
        """
        if self._judge is None:
            raise SandboxError("the judge of programs is not running: start it first")
        return self._judge

    async def start(self, context: RunContext) -> None:
        """Start the sandbox with a process for each core; on a cluster, on every node.

        Raises:
            SandboxError: The workers do not start, or fail their self-test.
        """
        if context.cluster.is_remote:
            self._sandbox = ClusterSandbox(make_judge_pool)
            await self._sandbox.start(context.cluster)
        else:
            self._sandbox = SandboxHost(make_judge_pool)
            await self._sandbox.start(context.progress)
        judge = Judge(self._sandbox)
        await judge.start()
        self._judge = judge

    async def check(self) -> None:
        """Run the self-test of the sandbox.

        Raises:
            SandboxError: The self-test failed.
        """
        if self._sandbox is not None:
            await self._sandbox.check()

    async def close(self) -> None:
        """Stop the sandbox."""
        sandbox, self._sandbox, self._judge = self._sandbox, None, None
        if sandbox is not None:
            await sandbox.close()


def suite_of(problem: Problem) -> TestSuite:
    """Return the tests of a problem.

    Raises:
        RewardError: The problem has no tests.
    """
    packed = problem.metadata.get(TESTS)
    if packed is None:
        raise RewardError(
            f"problem {problem.id!r} has no tests: programs are judged on problems with a column {TESTS!r}, or on a "
            "public set of programs (torl data sources)"
        )
    suite = unpack_suite(packed)
    if not suite.tests:  # any program would pass
        raise RewardError(f"problem {problem.id!r} has an empty list of tests")
    return suite


def make_judge_pool() -> SandboxPool:
    """Start a pool for a judge, which sets lower limits for each test.

    Raises:
        SandboxError: The workers do not start.
    """
    return SandboxPool(
        cpu_seconds=_CPU_SECONDS,
        wall_seconds=2 * _CPU_SECONDS,
        memory_bytes=_MEMORY_BYTES,
        output_bytes=_OUTPUT_BYTES,
    )
