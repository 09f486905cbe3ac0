"""Programs that cheat earn what an empty program earns."""

import asyncio
from collections.abc import Iterator

import pytest

from cheated_suite import HONEST, SUITE
from cheating_programs import CHEATS
from torl.components.programs import Judge, TestStatus, TestVerdict
from torl_sandbox import SandboxPool


@pytest.fixture(scope="module")
def pool() -> Iterator[SandboxPool]:
    with SandboxPool(workers=2, memory_bytes=512 << 20) as pool:
        yield pool


def _judged(pool: SandboxPool, program: str) -> list[TestVerdict]:
    async def judged() -> list[TestVerdict]:
        judge = Judge(pool, cpu_seconds=0.5)
        await judge.start()
        return await judge.judge(program, SUITE)

    return asyncio.run(judged())


def test_an_honest_program_passes_every_test(pool: SandboxPool) -> None:
    assert [each for each in _judged(pool, HONEST) if each.status is not TestStatus.PASSED] == []


@pytest.mark.parametrize("program", ["", "x = 1", *CHEATS.values()], ids=["empty", "no names", *CHEATS])
def test_a_cheating_program_passes_no_test(pool: SandboxPool, program: str) -> None:
    verdicts = _judged(pool, program)
    passed = [test for test, each in zip(SUITE.tests, verdicts, strict=True) if each.status is TestStatus.PASSED]
    assert passed == []
    for verdict in verdicts:
        verdict.message.encode()  # records hold it as UTF-8
