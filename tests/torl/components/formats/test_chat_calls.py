"""Calls in messages of each chat family: in thinking, between other text, with keys and values of other families."""

import json
import time
from collections.abc import Sequence

import pytest

from builders import turn
from chat_models import FAMILIES, ChatModel, message, written_message
from torl.base.types import MalformedCall, ToolRequest
from torl.components.formats import FORMATS
from torl.components.formats.chat import ChatOptions
from torl.components.formats.chat.chat_format import ChatFormat
from torl.rollout.agents.messages import message_of, valid_calls

SEVERAL = [family for family in FAMILIES if family != "harmony"]  # its call ends the turn
NAMED = ["hermes", "llama3"]  # JSON names the tool
KEYS = {"hermes": "arguments", "llama3": "parameters"}
CODE = json.dumps({"code": "1"})
FIRST, SECOND = ToolRequest("python", {"code": "1"}), ToolRequest("python", {"code": "2"})


def form_of(family: str, prefix: str = "") -> ChatFormat:
    form = FORMATS[family](ChatOptions(generation_prefix=prefix))  # type: ignore[operator]
    assert isinstance(form, ChatFormat)
    return form


def shown(family: str, text: str) -> str:
    """The text of a turn: end tokens are not shown, except Harmony's."""
    return text if family == "harmony" else text.removesuffix(ChatModel.of(family).end)


def read(family: str, text: str, prefix: str = "") -> tuple[Sequence[ToolRequest | MalformedCall], str]:
    form, said = form_of(family, prefix), turn(shown(family, text))
    return form.parse_calls(said), form.content(said)


def error(family: str, text: str) -> str:
    """The text that the model sees for the one malformed call of a message."""
    (call,), _ = read(family, text)
    assert isinstance(call, MalformedCall)
    return call.outcome.text


# --- thinking -----------------------------------------------------------------------------------------------------

CALL = {family: shown(family, message(family, "1", said="")) for family in FAMILIES}
OTHER = {family: shown(family, message(family, "2", said="")) for family in FAMILIES}
THINKING = {
    "none": ("", "{other}", [SECOND]),
    "empty": ("", "<think></think>{other}", [SECOND]),
    "before": ("", "<think>hm</think>\n\n{other}", [SECOND]),
    "call in it": ("", "<think>{call}</think>{other}", [SECOND]),
    "call alone in it": ("", "<think>{call}</think> So 1.", []),
    "opened by the template": ("<think>\n", "hm {call} hm</think>{other}", [SECOND]),
    "opened by an unknown template": ("", "hm {call} hm</think>{other}", [SECOND]),
    "never closed": ("", "<think>hm {call}", []),
    "opened by the template and never closed": ("<think>\n", "hm {call}", []),
    "two": ("", "<think>{call}</think> Well. <think>{call}</think>{other}", [SECOND]),
    "call between two": ("", "<think>hm</think>{call}<think>hm</think>", [FIRST]),
    "the second never closed": ("", "<think>hm</think>{call}<think>{other}", [FIRST]),
    "after the call": ("", "{call}<think>{other}</think>", [FIRST]),
}


@pytest.mark.parametrize("place", THINKING)
@pytest.mark.parametrize("family", SEVERAL)
def test_calls_in_thinking_are_thoughts_and_all_others_are_made(family: str, place: str) -> None:
    prefix, text, expected = THINKING[place]
    calls, _ = read(family, text.format(call=CALL[family], other=OTHER[family]), prefix)
    assert calls == expected


@pytest.mark.parametrize("thought", ["hm", "", CALL["harmony"], OTHER["hermes"], "<think>", "</think>"])
def test_a_call_in_the_analysis_of_harmony_is_a_thought(thought: str) -> None:
    text = f"<|channel|>analysis<|message|>{thought}<|end|><|start|>assistant"
    assert read("harmony", text + OTHER["harmony"]) == ([SECOND], "")
    assert read("harmony", f"{text}<|channel|>final<|message|>So 1.") == ([], "So 1.")


@pytest.mark.parametrize("family", SEVERAL)
def test_thinking_tags_in_the_code_of_a_call_are_code(family: str) -> None:
    code = "print('</think>', '<think>')"
    call = message(family, code, said="")
    expected = [ToolRequest("python", {"code": code})]
    assert read(family, call) == (expected, "")
    assert read(family, f"<think>{shown(family, call)} hm</think>{call}") == (expected, "")


def test_raw_code_of_llama_is_code_to_its_end_and_none_in_thinking() -> None:
    code = "print('</think>', {'name': 1})"
    expected = [ToolRequest("python", {"code": code})]
    assert read("llama3", f"<|python_tag|>{code}") == (expected, "")
    assert read("llama3", f"<think>I use <|python_tag|> for it.</think><|python_tag|>{code}") == (expected, "")


# --- text around calls --------------------------------------------------------------------------------------------

AROUND = [("Let us see. ", "", ""), ("", "\n", ""), ("", " And then: ", ""), ("", "", " That is all."), ("a", "b", "c")]


@pytest.mark.parametrize(("before", "between", "after"), AROUND)
@pytest.mark.parametrize("family", SEVERAL)
def test_text_around_calls_is_content_and_changes_no_call(family: str, before: str, between: str, after: str) -> None:
    text = written_message(
        family, [("python", CODE), ("echo", '{"say": "1"}')], said=before, between=between, after=after
    )
    calls, content = read(family, text)
    assert calls == [FIRST, ToolRequest("echo", {"say": "1"})]
    assert "".join(content.split()) == "".join(f"{before}{between}{after}".split())


def test_llama_calls_may_be_separated_by_semicolons() -> None:
    text = written_message("llama3", [("python", CODE)] * 2, between="; ")
    assert read("llama3", text) == ([FIRST, FIRST], "")


@pytest.mark.parametrize("text", ["{1, 2} is a set", 'the row {"name": "Bob", "age": 3}', r"\frac{1}{2}", "{}", "{"])
def test_other_braces_are_text_to_llama(text: str) -> None:
    assert read("llama3", text) == ([], text)


QUOTED = [
    '{"name": "Bob", "parameters": 3}',
    '{"name": "Bob", "arguments": "x"}',
    '{"name": "Bob"}',
    '{"name": "weather", "description": "Of a city.", "parameters": {"type": "object", "properties": {}}}',
    '{"name": "weather", "parameters": {"type": "object"}, "strict": true}',
    '{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}',
    '{"calls": [{"name": "python", "parameters": {"code": "1"}}]}',
    '{1, 2}, and it has a "name"',
]


@pytest.mark.parametrize("quoted", QUOTED)
@pytest.mark.parametrize("around", ["The answer is {}.", "A schema:\n```json\n{}\n```", "So {} and \\frac{{1}}{{2}}"])
def test_json_that_an_answer_quotes_is_text_to_llama(quoted: str, around: str) -> None:
    text = around.format(quoted)
    assert read("llama3", text) == ([], text)


def test_calls_of_llama_in_an_answer_are_made_or_say_that_they_are_not_json() -> None:
    call = CALL["llama3"]
    assert read("llama3", f"Let us see. {call}") == ([FIRST], "Let us see.")
    assert read("llama3", f"{call} But {QUOTED[0]}") == ([FIRST], f"But {QUOTED[0]}")
    for cut in (call[:-3], f"{call}}}", call.replace('"1"', "'1'")):
        assert error("llama3", f"Let us see. {cut}").startswith("InvalidJSON: the tool call is not JSON")


LONG = {
    "braces": "{",
    "begun objects": '{"name": "python", "parameters": ',
    "objects": '{"name": "a"};',
    "quotes": '{"',
    "openings": "{opening}",
    "begun calls": "{begun}",
    "thinking": "<think>",
    "ends of thinking": "</think>{opening}",
    "spaces": "{opening}    ",
}


@pytest.mark.parametrize("kind", LONG)
@pytest.mark.parametrize("family", FAMILIES)
def test_time_to_read_a_message_is_proportional_to_its_length(family: str, kind: str) -> None:
    whole = shown(family, message(family, "1", said=""))
    begun, opening = whole[: whole.index('"1')], whole[: whole.index("python")]
    part = LONG[kind].replace("{begun}", begun).replace("{opening}", opening)
    seconds = []
    for length in (15_000, 120_000):
        said = turn(part * (length // len(part)))
        start = time.process_time()
        form_of(family).calls(said)
        seconds.append(time.process_time() - start)
    assert seconds[1] < 30 * max(seconds[0], 0.01)  # 8 times, and 64 if the time were quadratic


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("more", ["}", "]}", ', "x": 1}', '"'])
def test_more_json_after_a_call_is_malformed(family: str, more: str) -> None:
    text = message(family, "1").replace('"code": "1"}', f'"code": "1"}}{more}')
    if family in NAMED:
        text = text.replace(f"}}{more}}}", f"}}}}{more}")
    assert error(family, text).startswith("InvalidJSON: the tool call is not JSON: Extra data")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_malformed_call_reaches_a_program_as_written_and_without_the_end_token(family: str) -> None:
    said = turn(shown(family, message(family, "1").replace('"code": "1"}', '"code": 1')))
    form = form_of(family)
    assert valid_calls(form.calls(said)) == []
    content = message_of(form, said, [], [], [])["content"]
    assert '"code": 1' in content
    assert "python" in content
    assert not any(token in content for token in form.end_tokens)
    assert "code" not in form.content(said)


# --- what a call names --------------------------------------------------------------------------------------------

VALUES = {  # of the arguments, and the error
    '{"code": "1"}': None,
    json.dumps(CODE): None,
    json.dumps(json.dumps({"code": "1"}, indent=1)): None,
    "null": "the arguments of 'python' must be a JSON object, got null",
    "[1]": "the arguments of 'python' must be a JSON object, got a list",
    "1": "the arguments of 'python' must be a JSON object, got 1",
    '{"code": "1", "code": "2"}': 'an object has the key "code" twice',
    '"print(1)"': "not JSON: Expecting value",
    "": "is not JSON",
}


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("family", FAMILIES)
def test_arguments_are_an_object_or_its_json_or_the_error_says_what_they_are(family: str, value: str) -> None:
    text, problem = written_message(family, [("python", value)]), VALUES[value]
    if problem is None:
        assert read(family, text)[0] == [FIRST]
    else:
        assert problem in error(family, text)


@pytest.mark.parametrize("key", ["arguments", "parameters"])
@pytest.mark.parametrize("family", NAMED)
def test_arguments_of_either_key_are_read(family: str, key: str) -> None:
    assert read(family, CALL[family].replace(KEYS[family], key)) == ([FIRST], "")


@pytest.mark.parametrize("more", ["", '"type": "function", ', '"id": "call_1", '])
@pytest.mark.parametrize("key", ["args", "input", "kwargs", "parameter", "function", "thought"])
@pytest.mark.parametrize("family", NAMED)
def test_a_key_that_is_not_read_is_named(family: str, key: str, more: str) -> None:
    """Alone, and in addition to arguments: a call never runs without them."""
    named = CALL[family].replace('{"name"', f'{{{more}"name"')
    assert read(family, named) == ([FIRST], "")
    for text in (named.replace(f'"{KEYS[family]}"', f'"{key}"'), named.replace('"}}', f'"}}, "{key}": 1}}')):
        assert error(family, text) == (
            f'InvalidCall: the call of \'python\' may only have "name" and "{KEYS[family]}", got "{key}"'
        )


@pytest.mark.parametrize("family", NAMED)
def test_both_keys_of_arguments_are_one_too_many(family: str) -> None:
    text = CALL[family].replace(f'"{KEYS[family]}"', '"arguments": {}, "parameters"')
    assert 'got "parameters"' in error(family, text)


@pytest.mark.parametrize("family", NAMED)
def test_a_call_may_have_no_arguments_and_must_have_a_name(family: str) -> None:
    alone = CALL[family].replace(f', "{KEYS[family]}": {CODE}', "")
    assert read(family, alone) == ([ToolRequest("python", {})], "")
    assert 'the "name" of the tool call must be text, got null' in error(
        family, CALL[family].replace('"python"', "null")
    )
    nested = CALL[family].replace('{"name"', '{"type": "function", "function": {"name"').replace("}}", "}}}")
    assert 'the tool call has no "name" of a tool, got "type", "function"' in error(family, nested)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_call_without_the_name_of_a_tool_is_malformed(family: str) -> None:
    assert error(family, written_message(family, [("", CODE)])).startswith(("InvalidCall: ", "CutCall: "))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_malformed_call_ends_after_its_json_too(family: str) -> None:
    """The error describes the whole call, not the part before a tag in a string."""
    tags = "".join(form_of(family).tags or form_of(family).visible_tokens)
    problem = error(family, written_message(family, [("python", json.dumps([tags]))]))
    kind = "InvalidCall" if family in NAMED else "InvalidJSON"
    assert problem == f"{kind}: the arguments of 'python' must be a JSON object, got a list"
