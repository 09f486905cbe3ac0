"""torl's judge against a CPython of this machine: public programs, right ones and wrong ones, have equal verdicts."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from random import Random

import pytest

from judged_programs import UNEXPLAINED, Case, Pair, compared, human_eval, mbpp, with_calls, wrong_programs
from native_judge import NativeJudge
from torl.components.programs.judge import Judge, TestStatus
from torl_sandbox import SandboxPool

DATA = Path(__file__).parents[3] / "shared" / "data"
SAMPLE = 40
SEED = 1

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def published() -> list[Case]:
    """Programs of HumanEval and of MBPP that their authors wrote."""
    files = (DATA / "humaneval.jsonl", DATA / "mbpp_sanitized.jsonl")
    if not all(map(Path.exists, files)):
        pytest.skip("the public sets are not on this machine")
    random = Random(SEED)
    return [*random.sample([*human_eval(files[0])], SAMPLE), *random.sample([*mbpp(files[1])], SAMPLE)]


@pytest.fixture(scope="module")
def native() -> Iterator[NativeJudge]:
    with NativeJudge(cpu_seconds=2) as judge:
        yield judge


@pytest.fixture(scope="module")
async def judge() -> AsyncIterator[Judge]:
    with SandboxPool(2, wall_seconds=600, memory_bytes=1 << 30, result_cache_bytes=0) as pool:
        judge = Judge(pool, cpu_seconds=4)
        await judge.start()
        yield judge


def without_a_cause(pairs: list[Pair]) -> str:
    """The pairs that are not judged here, or whose verdicts differ without a reason, as text."""
    return "\n".join(
        f"{each.case.name} {each.index}: {each.cause} ({each.ours}, natively {each.native} {each.message})\n"
        f"{each.case.program}"
        for each in pairs
        if each.cause == UNEXPLAINED or each.ours.status is TestStatus.NOT_JUDGED
    )


async def test_published_solutions_pass_their_tests(published: list[Case], judge: Judge, native: NativeJudge) -> None:
    pairs = [pair async for pair in compared(published, judge, native)]
    assert without_a_cause(pairs) == ""
    assert sum(pair.native == "passed" for pair in pairs) > 0.95 * len(pairs)


async def test_published_calls_and_their_printed_results_have_equal_verdicts(
    published: list[Case], judge: Judge, native: NativeJudge
) -> None:
    pairs = [pair async for pair in compared(list(with_calls(published)), judge, native)]
    assert without_a_cause(pairs) == ""
    assert len(pairs) > SAMPLE


async def test_programs_with_one_mistake_fail_where_they_fail_natively(
    published: list[Case], judge: Judge, native: NativeJudge
) -> None:
    pairs = [pair async for pair in compared(wrong_programs(published, 2, Random(SEED)), judge, native)]
    assert without_a_cause(pairs) == ""
    assert sum(pair.native != "passed" for pair in pairs) > SAMPLE
