"""Programs that are right in unusual ways lose nothing."""

import asyncio
from collections.abc import Iterator

import pytest

from torl.components.programs import Judge, Test, TestStatus, TestSuite
from torl_sandbox import SandboxPool
from unusual_programs import UNUSUAL
from unusual_tests import module_of
from wrong_programs import UNJUDGED, WRONG


@pytest.fixture(scope="module")
def pool() -> Iterator[SandboxPool]:
    with SandboxPool(workers=2, memory_bytes=512 << 20, output_bytes=16 << 20) as pool:
        yield pool


@pytest.mark.parametrize(("program", "tests"), UNUSUAL.values(), ids=UNUSUAL.keys())
def test_a_right_program_passes(pool: SandboxPool, program: str, tests: tuple[Test, ...]) -> None:
    async def judged() -> None:
        judge = Judge(pool)
        await judge.start()
        verdicts = await judge.judge(program, TestSuite(tests))
        assert [each for each in verdicts if each.status is not TestStatus.PASSED] == []

    asyncio.run(judged())


@pytest.mark.parametrize("tests", [tests for _, tests in UNUSUAL.values()], ids=UNUSUAL.keys())
def test_an_empty_program_fails(pool: SandboxPool, tests: tuple[Test, ...]) -> None:
    async def judged() -> None:
        judge = Judge(pool)
        await judge.start()
        verdicts = await judge.judge("", TestSuite(tests))
        assert [each for each in verdicts if each.status in (TestStatus.PASSED, TestStatus.NOT_JUDGED)] == []

    asyncio.run(judged())


@pytest.mark.parametrize(("program", "tests"), WRONG.values(), ids=WRONG.keys())
async def test_a_wrong_program_fails(pool: SandboxPool, program: str, tests: tuple[Test, ...]) -> None:
    judge = Judge(pool)
    await judge.start()
    for verdict in await judge.judge(program, TestSuite(tests)):
        assert verdict.status in (TestStatus.WRONG, TestStatus.EXCEPTION)


@pytest.mark.parametrize("code", UNJUDGED.values(), ids=UNJUDGED.keys())
async def test_a_test_that_says_nothing_is_not_judged(pool: SandboxPool, code: str) -> None:
    judge = Judge(pool)
    await judge.start()
    for program in ("def f(*x): return 1\nclass C: pass\n", "def f(*x): return 2\nclass C: pass\n"):
        _, tests = module_of(program, code)
        for verdict in await judge.judge(program, TestSuite(tests)):
            assert verdict.status is TestStatus.NOT_JUDGED
            assert verdict.message
