"""The rows of each public set with tests, judged: their own solutions pass, and programs that do nothing fail."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from program_set_rows import PROGRAM_EVALUATION, PROGRAM_TRAINING, TASKS
from torl.base.types import Problem
from torl.components.data.files import InvalidRowError
from torl.components.data.problems import read_problems
from torl.components.data.public_sets import ProblemFile, public_sets
from torl.components.programs import Judge, TestStatus, unpack_suite
from torl_sandbox import SandboxPool

SETS = {**PROGRAM_TRAINING, **PROGRAM_EVALUATION}
BODIES = {task.question: task for task in TASKS}


@pytest.fixture(scope="module")
def pool() -> Iterator[SandboxPool]:
    with SandboxPool(workers=2, cpu_seconds=60.0, memory_bytes=1 << 30) as pool:
        yield pool


@pytest.fixture
async def judge(pool: SandboxPool) -> Judge:
    judge = Judge(pool)
    await judge.start()
    return judge


def problems_of(name: str, folder: Path) -> list[Problem]:
    SETS[name]().write(folder)
    found = public_sets()[name]
    path = next(folder.glob("*.jsonl")) if found.address is None else folder
    read = list(read_problems(ProblemFile(str(path), found.layout)))
    return [each for each in read if not isinstance(each, InvalidRowError)]


@pytest.mark.parametrize("name", SETS)
async def test_right_programs_pass_and_empty_ones_fail(name: str, tmp_path: Path, judge: Judge) -> None:
    problems = problems_of(name, tmp_path)

    async def passes(problem: Problem, program: str) -> bool:
        verdicts = await judge.judge(program, unpack_suite(problem.metadata["tests"]))
        return all(each.status is TestStatus.PASSED for each in verdicts)

    right, wrong = [], []
    for problem in problems:
        task = next(task for question, task in BODIES.items() if question in problem.question)
        called = task.code.replace(task.function, "task_func") if name == "bigcodebench" else task.code
        programs = (task.program, task.method, called)  # the problem says which of them it wants
        own = problem.metadata.get("solutions", [])
        right.append(await asyncio.gather(*(passes(problem, each) for each in (*programs, *own))))
        empty = ("", "x = 1", called.replace("return ", "return 1 + "), task.program.replace("print(", "print(1 + "))
        wrong.append(await asyncio.gather(*(passes(problem, each) for each in empty)))
    assert all(any(each[:3]) and all(each[3:]) for each in right), right
    assert not any(map(any, wrong)), wrong
