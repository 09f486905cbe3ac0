"""The reward "tests" and the tool "run_examples", in the real sandbox."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from builders import asked, group, trajectory
from torl.base.component import RunContext
from torl.base.errors import RewardError
from torl.base.types import Grade, Outcome, Problem, Prompt
from torl.components.programs import CallTest, InputTest, TestSuite, pack_suite
from torl.components.programs.submission import find_program
from torl.components.rewards.tests import TestsOptions, TestsReward
from torl.components.tools import ExamplesTool

DOUBLE = TestSuite(tuple(InputTest(f"{n}\n", f"{2 * n}\n") for n in (1, 2, -30, 4000)), public=1)
RIGHT = "print(2 * int(input()))"


def block(code: str) -> str:
    return f"I print the double.\n```python\n{code}\n```\n"


def problem(suite: TestSuite) -> Problem:
    return Problem("double", "Print the double.", "", {"tests": pack_suite(suite)})


def grades(texts: list[str], suite: TestSuite = DOUBLE, **options: Any) -> list[Grade]:
    prompt = Prompt(problem(suite), ())

    async def work() -> list[Grade]:
        reward = TestsReward(TestsOptions(**options))
        try:
            await reward.start(RunContext())
            return await reward.grade(group(*(trajectory(text, prompt=prompt) for text in texts)))
        finally:
            await reward.close()

    return asyncio.run(work())


def test_the_reward_needs_all_tests() -> None:
    found = grades(
        [
            block(RIGHT),
            block("print(2)"),
            block("n = int(input())\nif n > 3000:\n    raise ValueError(n)\nprint(2 * n)"),
            block("while True: pass"),
            f"```python\n{RIGHT}",
            "It is 2.",
        ],
        replace(DOUBLE, cpu_seconds=0.2),
    )
    assert [grade.reward for grade in found] == [1, -1, -1, -1, -1, -1]
    assert [grade.correct for grade in found] == [True, False, False, False, False, False]
    assert [grade.detail.partition(":")[0] for grade in found] == ["", "wrong", "exception", "timeout", "", "exception"]
    assert found[2].detail == "exception: test 4 of 4: ValueError: 4000"
    assert [grade.answer for grade in found[4:]] == [None, "It is 2."]
    assert {grade.failure for grade in found} == {None}


def test_the_reward_is_in_proportion_to_passed_tests() -> None:
    texts = [
        block(RIGHT),
        block("print(2)"),
        block("x = int(input())\nprint(2 * x if x < 4000 else 0)"),
        block("1 / 0"),
    ]
    found = grades(texts, score="fraction", wrong=0.0)
    assert [grade.reward for grade in found] == [1, 0.25, 0.75, 0]
    assert [grade.correct for grade in found] == [True, False, False, False]


@pytest.mark.parametrize(
    ("options", "passes"),
    [
        ({"max_tests": 2, "choose": "first"}, [True, True]),  # 1 and 2
        ({"max_tests": 2, "choose": "longest"}, [False, True]),  # -30 and 4000
        ({"max_tests": 9, "choose": "random"}, [False, True]),
    ],
)
def test_the_first_or_the_longest_tests_are_chosen(options: dict[str, Any], passes: list[bool]) -> None:
    texts = [block("x = int(input())\nprint(2 * x if 0 < x < 3 else 0)"), block(RIGHT)]
    assert [grade.correct for grade in grades(texts, **options)] == passes


def test_random_tests_are_equal_for_the_programs_of_a_group() -> None:
    texts = [block("print(2 * int(input()))  # one"), block("x = int(input())\nprint(x + x)"), block("print(2)")]
    for _ in range(3):
        found = grades(texts, max_tests=1, choose="random", score="fraction", wrong=0.0)
        assert [grade.reward for grade in found][:2] == [1, 1]


def test_a_function_is_judged_by_its_results() -> None:
    suite = TestSuite((CallTest("double", [2], 4), CallTest("double", [[1]], [1, 1])))
    found = grades([block("def double(x):\n    return x + x"), block("def double(x):\n    return 4")], suite)
    assert [grade.correct for grade in found] == [True, False]
    assert found[1].detail == "wrong: test 2 of 2: returned 4"


def test_an_empty_list_of_tests_is_an_error() -> None:
    with pytest.raises(RewardError, match="has an empty list of tests"):
        grades([block(RIGHT)], TestSuite(()))


def test_a_problem_without_tests_stops_the_run() -> None:
    async def work() -> None:
        reward = TestsReward()
        try:
            await reward.start(RunContext())
            await reward.grade(group(trajectory(block(RIGHT), prompt=asked("What is 1 + 1?", "2"))))
        finally:
            await reward.close()

    with pytest.raises(RewardError, match="has no tests"):
        asyncio.run(work())


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("```python\na = 1\n```", "a = 1\n"),
        ("```python\na\n```\ntext\n```py\nb\n```", "b\n"),
        ("```python\na\n```\n```output\n3\n```", "a\n"),
        ("```\na\n```", "a\n"),
        ("```\nb\n```\n```python\na\n```\n```\nc\n```", "a\n"),
        ("```python\na\n```\n```python\nb", "a\n"),
        ("```python\na\n```cpp\nb\n```", None),
        ("```cpp\nint a;\n```", None),
        ("   ```Python\r\na\r\n   ```", "a\r\n   "),
        ("a = 1", "a = 1"),
    ],
)
def test_the_last_complete_block_is_the_program(text: str, program: str | None) -> None:
    found = find_program(text)
    assert (found and found.strip()) == (program and program.strip())


def test_the_whole_text_is_the_program_of_a_model_that_writes_nothing_else() -> None:
    assert find_program("print(1)\n") == "print(1)"
    assert find_program("Look:\n```python\nprint(2)\n```") == "print(2)\n"
    assert find_program(" \n") is None


def called(code: str, suite: TestSuite = DOUBLE) -> Outcome:
    async def work() -> Outcome:
        tool = ExamplesTool()
        try:
            await tool.start(RunContext())
            return await tool.problem_session(problem(suite), 0).call({"code": code})
        finally:
            await tool.close()

    return asyncio.run(work())


def test_the_tool_shows_public_examples_and_no_other() -> None:
    assert called(RIGHT).text == "example 1: passed"
    wrong = called("print(7)").text
    assert wrong == "example 1: wrong: printed '7\\n'\n  input: '1'\n  expected: '2'"
    assert "4000" not in wrong
    assert called(RIGHT, TestSuite(DOUBLE.tests)).text == "the problem shows no examples"


def test_the_tool_shows_calls() -> None:
    suite = TestSuite((CallTest("double", [2], 4), CallTest("double", [5], 10)), public=2)
    text = called("def double(x):\n    return 4", suite).text
    assert text == "example 1: passed\nexample 2: wrong: returned 4\n  call: 'double(5)'\n  expected: '10'"
