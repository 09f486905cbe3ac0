"""Calls that vLLM's tool parsers read: torl reads the same calls of the same text, and the same content before them."""

import json
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm.tool_parsers.deepseekv3_tool_parser import DeepSeekV3ToolParser
from vllm.tool_parsers.hermes_tool_parser import Hermes2ProToolParser
from vllm.tool_parsers.llama_tool_parser import Llama3JsonToolParser

from builders import turn
from chat_models import ChatModel, written_message
from torl.base.types import ToolRequest

PARSERS = {"hermes": Hermes2ProToolParser, "llama3": Llama3JsonToolParser, "deepseek": DeepSeekV3ToolParser}
# vLLM takes an object of Llama's right after another for a part of it, so that there is text between them.
# Its regular expressions end at the tags of their own family, also inside a string.
texts = st.lists(st.sampled_from(["a", '"', "\\", "{", "}", "[", ",", "\n", "é", "</s>", "[ARGS]", "<x>"]), max_size=6)
values = texts.map("".join) | st.integers() | st.none() | st.lists(st.integers(), max_size=2)
called = st.tuples(st.sampled_from(["python", "look_up"]), st.dictionaries(texts.map("".join), values, max_size=3))


@cache
def parser(family: str) -> Any:
    return PARSERS[family](ChatModel.of(family).tokenizer)


@pytest.mark.parametrize("family", PARSERS)
@settings(deadline=None)
@given(st.lists(called, min_size=1, max_size=3), st.sampled_from(["", "Let us see."]), st.sampled_from(["; ", " so "]))
def test_vllm_reads_the_same_calls(
    family: str, made: list[tuple[str, dict[str, Any]]], said: str, between: str
) -> None:
    form = ChatModel.of(family).form
    written = [(tool, json.dumps(arguments)) for tool, arguments in made]
    text = written_message(family, written, said=said, between=between).removesuffix(form.end_tokens[0])
    found = parser(family).extract_tool_calls(text, None)
    read = [ToolRequest(call.function.name, json.loads(call.function.arguments)) for call in found.tool_calls]
    assert form.parse_calls(turn(text)) == read
    if family != "llama3":  # vLLM drops its text
        first = form.read_message(text).parts[0]
        assert isinstance(first, str)
        assert (
            first.replace(form.surrounding[0] if form.surrounding else "", "").strip() == (found.content or "").strip()
        )
