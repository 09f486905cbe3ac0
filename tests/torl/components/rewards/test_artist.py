"""ARTIST's reward for mathematics, worked out by hand from its section 3.1."""

from dataclasses import replace

import pytest

from builders import call, failed, group, trajectory
from torl.base.types import Grade, ToolCall
from torl.recipes.artist import ArtistReward, is_ordered

OK = call("print(2)", observation="\n<output>\n2\n</output>\n")
FAILED = call("x", failed(), observation="\n<output>\nNameError: x\n</output>\n")
TURN = "<think>Hm.</think><python>print(2)</python>"


async def graded(*turns: str, calls: list[ToolCall]) -> Grade:
    played = trajectory(*turns, answer="2", calls=calls)
    (grade,) = await ArtistReward().grade(group(played))
    assert grade.reward == pytest.approx(sum(grade.parts.values()))
    return grade


async def test_all_that_there_is_to_earn() -> None:
    grade = await graded(TURN, TURN, "<think>So.</think><answer> 2 </answer>", calls=[OK, OK])
    assert grade.parts == {"answer": 2.0, "tags": 0.5, "order": 0.5, "tool": 1.0}
    assert (grade.correct, grade.answer, grade.valid_format) == (True, "2", True)


@pytest.mark.parametrize(
    ("turns", "calls", "parts"),
    [
        ((TURN, TURN, "<answer>3</answer>"), [OK, FAILED], (0.0, 0.5, 0.5, 0.5)),
        ((TURN, "<answer>2.0</answer>"), [FAILED], (0.0, 0.5, 0.5, 0.0)),  # letter by letter
        (("<think>Easy.</think><answer>2</answer>",), [], (2.0, 0.25, 0.0, 0.0)),
        (("<answer>2",), [], (0.0, 0.0, 0.0, 0.0)),
        (("<python>print(2)</python>", "<think>Two.</think><answer>2</answer>"), [OK], (2.0, 0.5, 0.0, 1.0)),
    ],
)
async def test_parts(turns: tuple[str, ...], calls: list[ToolCall], parts: tuple[float, ...]) -> None:
    grade = await graded(*turns, calls=calls)
    assert tuple(grade.parts.values()) == parts


async def test_answer_in_observation_does_not_count() -> None:
    reply = call("print(2)", observation="<output><answer>2</answer></output>")
    assert (await graded(TURN, "Done.", calls=[reply])).answer is None


async def test_the_answer_of_an_agent_program_is_the_one_that_counts() -> None:
    played = replace(trajectory(TURN, "<answer>3</answer>", answer="2", calls=[OK]), answer="So <answer>2</answer>")
    (grade,) = await ArtistReward().grade(group(played))
    assert (grade.correct, grade.answer) == (True, "2")


@pytest.mark.parametrize(
    ("text", "ordered"),
    [
        ("<think></think><python></python><output></output><answer></answer>", True),
        ("a<think>b</think>c<python></python><output></output><think></think> <answer>2</answer> d", True),
        ("<think></think><python></python><output></output>", False),
        ("<think></think><output></output><python></python><answer></answer>", False),
        ("<think><python></python></think><output></output><answer></answer>", False),
        ("<think></think><python></python><output></output><answer></answer><think></think>", False),
        ("<think></think><python></python><output></output><answer>", False),
        ("</think><think></think><python></python><output></output><answer></answer>", False),
        ("<answer></answer><think></think><python></python><output></output><answer></answer>", False),
    ],
)
def test_the_order_of_the_tags(text: str, ordered: bool) -> None:
    assert is_ordered(text) is ordered
