"""Tags in texts: in arguments of calls, where they are text, and against a regular expression on short texts."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import turn
from chat_models import FAMILIES, OTHER_TOKENS, ChatModel, written_message
from torl.base.types import MalformedCall, ToolRequest
from torl.components.formats.chat import HermesFormat
from torl.components.formats.chat.calls import TRUNCATED_CALL
from torl.components.text.answers import find_tagged_answer
from torl.run.records.behaviors import called_names

TAGS = st.lists(st.sampled_from(["<{}>", "</{}>", "{{}}", "1", "<", " "]), max_size=12).map("".join)
LONG = 300_000  # a search from each opening tag anew would outlast any time limit


MARKUP = sorted(
    {text for family in FAMILIES for text in (*ChatModel.of(family).form.control_tokens, *OTHER_TOKENS.get(family, ()))}
    | {text for family in FAMILIES for text in (*ChatModel.of(family).form.visible_tokens, "<think>", "</think>")}
)
pieces = st.sampled_from(
    [*MARKUP, '"', "\\", "{", "}", "[", "]", ",", ":", "```", "\n", "json", "functions.f:0", "é", " "]
)
texts = st.lists(pieces, max_size=8).map("".join)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
called = st.tuples(st.sampled_from(["python", "look_up"]), st.dictionaries(texts, values, max_size=3))
prose = st.lists(st.sampled_from(["Let us see", "é", "1 + 1", "\n", " "]), max_size=4).map("".join)


@given(
    st.sampled_from(FAMILIES),
    st.lists(called, min_size=1, max_size=3),
    st.lists(called, min_size=1, max_size=2),
    st.tuples(prose, prose, prose),
    st.booleans(),
)
def test_calls_are_read_as_written_whatever_tags_their_arguments_have(
    family: str,
    made: Sequence[tuple[str, Mapping[str, Any]]],
    thought: Sequence[tuple[str, Mapping[str, Any]]],
    said: tuple[str, str, str],
    ascii: bool,
) -> None:
    """A law of every family: also after calls that are thoughts, and with text around the calls."""
    form = ChatModel.of(family).form
    if family == "harmony":  # its message has one call, no text, and thinking in another message
        made, said = made[:1], ("", "", "")

    def written(calls: Sequence[tuple[str, Mapping[str, Any]]], before: str, between: str, after: str) -> str:
        texts = [(tool, json.dumps(arguments, ensure_ascii=ascii)) for tool, arguments in calls]
        text = written_message(family, texts, said=before, between=between, after=after)
        return text if form.end_tokens[0] in form.visible_tokens else text.removesuffix(form.end_tokens[0])

    thinking = "" if family == "harmony" else f"<think>{written(thought, '', '', '')}</think>"
    message = turn(thinking + written(made, *said))
    assert form.parse_calls(message) == [ToolRequest(tool, arguments) for tool, arguments in made]
    assert "".join(form.content(message).split()) == "".join((said[0] + said[1] * (len(made) - 1) + said[2]).split())


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
