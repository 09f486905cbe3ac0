"""Programs that are right in unusual ways lose nothing."""

import asyncio
from collections.abc import Iterator

import pytest

from torl.base.errors import SandboxError
from torl.components.programs import InputTest, Judge, Test, TestStatus, TestSuite
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


async def test_tests_after_the_first_failure_are_not_run(pool: SandboxPool) -> None:
    judge = Judge(pool)
    await judge.start()
    suite = TestSuite(tuple(InputTest(f"{n}\n", f"{n}\n") for n in range(40)))
    found = await judge.judge("n = int(input())\nprint(n if n < 9 else 0)", suite, stop_at_failure=True)
    expected = [TestStatus.PASSED] * 9 + [TestStatus.WRONG] + [TestStatus.NOT_RUN] * 30
    assert [each.status for each in found] == expected


async def test_an_error_of_the_sandbox_is_raised_as_it_is() -> None:
    pool = SandboxPool(workers=1)
    judge = Judge(pool)
    await judge.start()
    pool.close()
    with pytest.raises(SandboxError):
        await judge.judge("", TestSuite((InputTest("", ""), InputTest("", ""))))
