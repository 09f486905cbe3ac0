"""Text between tags, against a regular expression: equal on short texts, and done on texts too long for it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import turn
from torl.formats.chat import HermesFormat
from torl.formats.chat.calls import TRUNCATED_CALL
from torl.records.behaviors import called_names
from torl.text.answers import find_tagged_answer
from torl.types import MalformedCall

TAGS = st.lists(st.sampled_from(["<{}>", "</{}>", "{{}}", "1", "<", " "]), max_size=12).map("".join)
LONG = 300_000  # a search from each opening tag anew would outlast any time limit


@given(TAGS)
def test_the_last_answer_is_that_of_the_last_complete_tags(pieces: str) -> None:
    text = pieces.format(*["answer"] * 12)
    found = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
    assert find_tagged_answer(text) == (found[-1].strip() if found else None)


@given(TAGS)
def test_the_calls_are_those_of_complete_tags_and_one_that_was_cut(pieces: str) -> None:
    form, text = HermesFormat(), pieces.format(*["tool_call"] * 12)
    found = list(re.finditer(r"<tool_call>(.*?)</tool_call>", text, re.DOTALL))
    *_, behind = 0, *(each.end() for each in found)
    calls = form.parse_calls(turn(text))
    assert calls[: len(found)] == [form.parse_call(each[1]).request for each in found]
    cut = [call.error for call in calls[len(found) :] if isinstance(call, MalformedCall)]
    assert cut == [TRUNCATED_CALL] * ("<tool_call>" in text[behind:])


@given(st.lists(st.sampled_from(["a", "b1", ".", "(", " ", "\n", "(a", "é"]), max_size=12).map("".join))
def test_called_name_precedes_its_parenthesis(code: str) -> None:
    names = set()
    for place in (found.start() for found in re.finditer(r"\(", code)):
        before = re.search(r"(\w+(?:\.\w+)*)\s*\Z", code[:place])
        if before is not None and re.match("[A-Za-z_]", before[1]):
            names.add(before[1])
    assert called_names(code) == names


@pytest.mark.parametrize("pieces", ["<tool_call>", "<tool_call>{", "</think><tool_call>"])
def test_a_turn_of_nothing_but_opened_calls_is_read(pieces: str) -> None:
    (call,) = HermesFormat().parse_calls(turn(pieces * LONG))
    assert isinstance(call, MalformedCall)
    assert call.error == TRUNCATED_CALL


def test_response_of_unclosed_answers_has_no_answer() -> None:
    assert find_tagged_answer("<answer>" * LONG) is None


@pytest.mark.parametrize("pieces", ["a", "a.", "a..", "a. "])
def test_code_that_is_one_long_name_calls_nothing(pieces: str) -> None:
    assert called_names(pieces * LONG) == set()
