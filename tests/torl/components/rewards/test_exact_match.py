"""Exact match of the text in <answer> tags, with the rewards of Search-R1."""

import pytest

from builders import asked, call, group, trajectory
from torl.components.text.answers import find_tagged_answer
from torl.recipes.search_r1 import ExactMatchOptions, ExactMatchReward, is_same_answer, squad_normalize


@pytest.mark.parametrize(
    ("text", "normalized"),
    [
        # The cases of `qa_em.py`'s `normalize_answer`, by hand: case, punctuation, articles, space.
        ("The Beatles", "beatles"),
        ("  U.S.A. ", "usa"),
        ("an  apple, a day", "apple day"),
        ("theatre", "theatre"),
        ("1,000", "1000"),
        ("Köln\u2019s", "köln\u2019s"),
        ("a.the", "athe"),
        ("the", ""),
    ],
)
def test_normalization_of_answers(text: str, normalized: str) -> None:
    assert squad_normalize(text) == normalized


@pytest.mark.parametrize(
    ("answer", "reference", "same"),
    [
        ("the Beijing", "Beijing.", True),
        ("Beijing city", "Beijing", False),
        ("Paris", "City of Light\nParis", True),
        ("Paris", "City of Light\x1eParis", True),
        ("The", "the", True),
        ("", "the", False),
        ("", "A", False),
        (" a ", "A", True),
        ("the", "A", False),
        ("?", "!", False),
        ("", "Paris", False),
        ("anything", "", False),
    ],
)
def test_any_line_of_the_reference_may_be_meant(answer: str, reference: str, same: bool) -> None:
    assert is_same_answer(answer, reference) is same


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer> Beijing </answer>", "Beijing"),
        ("<answer>one</answer> no: <answer>two\nlines</answer> and <answer>open", "two\nlines"),
        ("</answer>Beijing<answer>", None),
        ("<answer><answer>x</answer>", "<answer>x"),
        ("Beijing", None),
    ],
)
def test_the_last_whole_answer_counts(text: str, answer: str | None) -> None:
    assert find_tagged_answer(text) == answer


async def test_answers_are_rewarded_and_observations_ignored() -> None:
    prompt = asked("p", answer="Paris")
    passage = "<information><answer>Paris</answer></information>"
    turns = [
        trajectory("<search>capital</search>", "<answer>the paris</answer>", prompt=prompt),
        trajectory("<search>capital</search>", "I do not know.", prompt=prompt, calls=[call(observation=passage)]),
        trajectory("<answer>Rome</answer>", prompt=prompt),
    ]
    grades = await ExactMatchReward(ExactMatchOptions(correct=2.0, wrong=-0.5)).grade(group(*turns))
    assert [(grade.reward, grade.correct, grade.answer) for grade in grades] == [
        (2.0, True, "the paris"),
        (-0.5, False, None),
        (-0.5, False, "Rome"),
    ]
    assert [grade.reward for grade in await ExactMatchReward().grade(group(*turns))] == [1.0, 0.0, 0.0]
