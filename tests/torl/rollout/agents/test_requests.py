"""Requests of programs: the fields that count, and how a conversation that a program wrote becomes tokens."""

import copy
import json
from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

from agent_programs import TEMPLATE, TOOLS, user
from chat_models import ChatModel
from torl.rollout.agents.conversations import conversation_key
from torl.rollout.agents.messages import PromptRenderer
from torl.rollout.agents.requests import ChatRequest, RequestError

MODEL = ChatModel.of("hermes")
MODEL.tokenizer.chat_template = TEMPLATE
RENDERER = PromptRenderer(MODEL.tokenizer, MODEL.encoder)
CALL = {"id": "a", "type": "function", "function": {"name": "python", "arguments": '{"code": "1", "x": [1, 2]}'}}
OTHER = {"id": "b", "type": "function", "function": {"name": "python", "arguments": "{}"}}
TOLD: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    user("What?"),
    {"role": "assistant", "content": "Let us see.", "tool_calls": [CALL, OTHER]},
    {"role": "tool", "tool_call_id": "a", "content": "one"},
    {"role": "tool", "tool_call_id": "b", "content": "two"},
]


def key(messages: list[dict[str, Any]], tools: Any = None) -> str:
    request = ChatRequest.read({"messages": messages, "tools": tools})
    return conversation_key(request.messages, request.tools)


def changed(place: int, **fields: Any) -> list[dict[str, Any]]:
    messages = copy.deepcopy(TOLD)
    messages[place] |= fields
    return messages


def with_arguments(arguments: str) -> list[dict[str, Any]]:
    return changed(2, tool_calls=[CALL | {"function": {"name": "f", "arguments": arguments}}])


def with_ids(*ids: str) -> list[dict[str, Any]]:
    messages = changed(2, tool_calls=[CALL | {"id": ids[0]}, OTHER | {"id": ids[1]}])
    messages[3]["tool_call_id"], messages[4]["tool_call_id"] = ids
    return messages


@pytest.mark.parametrize(
    "same",
    [
        changed(0, role="developer"),
        changed(0, content=[{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}]),
        changed(2, content=" Let us see.\n"),
        changed(2, reasoning_content="hm", refusal=None, audio=None, annotations=[]),
        changed(2, tool_calls=[CALL | {"function": {"name": "python", "arguments": '{"x":[1,2],"code":"1"}'}}, OTHER]),
        changed(2, tool_calls=[CALL, OTHER | {"function": {"name": "python", "arguments": ""}}]),
        changed(3, name="python"),
        [*TOLD[:3], TOLD[4], TOLD[3]],
        with_ids("c", "d"),
    ],
)
def test_conversations_that_mean_the_same_are_one(same: list[dict[str, Any]]) -> None:
    assert key(same) == key(TOLD)


@pytest.mark.parametrize(
    "other",
    [
        changed(0, content="Be brief. "),
        changed(1, role="system"),
        changed(2, content="Let us see!"),
        changed(2, tool_calls=[OTHER, CALL]),
        changed(2, tool_calls=[CALL, OTHER | {"function": {"name": "python", "arguments": "{"}}]),
        changed(3, content="two"),
        TOLD[1:],
        TOLD[:-1],
    ],
)
def test_edited_history_starts_another_conversation(other: list[dict[str, Any]]) -> None:
    assert key(other) != key(TOLD)


def test_other_tools_are_another_conversation() -> None:
    assert key(TOLD, TOOLS) != key(TOLD)
    assert key(TOLD, []) == key(TOLD)


VALUES: dict[str, Any] = {
    "frequency_penalty": 0.0,
    "function_call": "auto",
    "functions": [],
    "logit_bias": {},
    "logprobs": False,
    "max_completion_tokens": 5,
    "max_tokens": 5,
    "modalities": ["text"],
    "n": 1,
    "presence_penalty": 0,
    "response_format": {"type": "text"},
    "stream": True,
    "stream_options": {"include_usage": True},
    "tool_choice": "auto",
    "tools": TOOLS,
    "top_logprobs": 0,
}
"""Values of a request's fields, if the field is restricted."""


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ([], None),
        ({}, "messages"),
        ({"messages": [user("?")], "n": 2}, "n"),
        ({"messages": [user("?")], "response_format": {"type": "json_object"}}, "response_format"),
        ({"messages": [user("?")], "frequency_penalty": 0.5}, "frequency_penalty"),
        ({"messages": [user("?")], "tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
        ({"messages": [user("?")], "chat_template_kwargs": {"enable_thinking": False}}, "chat_template_kwargs"),
        ({"messages": [user("?")], "min_tokens": 5}, "min_tokens"),
        ({"messages": [user("?")], "max_tokens": 0}, "max_tokens"),
        ({"messages": [user("?")], "max_completion_tokens": True}, "max_completion_tokens"),
        ({"messages": [user("?")], "stop": [""]}, "stop"),
        ({"messages": [user("?")], "tools": ["python"]}, "tools"),
        ({"messages": [{"role": "critic", "content": "?"}]}, "messages[0].role"),
        ({"messages": [user("?"), {"role": "tool", "content": "?"}]}, "messages[1].tool_call_id"),
        ({"messages": [user("\ud800")]}, "messages"),
        (
            {"messages": with_arguments('"\\ud800"')},
            "messages",
        ),
        ({"messages": with_arguments("[" * 900 + "]" * 900)}, "messages"),
        ({"messages": [user("?")], "tools": [{**TOOLS[0], "strict": "\ud800"}]}, "tools"),
        (
            {"messages": [user("?")], "tools": [{**TOOLS[0], "deep": json.loads('{"a":' * 900 + "1" + "}" * 900)}]},
            "tools",
        ),
        ({"messages": [user("?")], "tools": [{"type": "custom", "custom": {"name": "f"}}]}, "tools"),
        ({"messages": [user("?")], "tools": [{"type": "function", "name": "f"}]}, "tools"),
        ({"messages": [user("?")], "guided_json": {"type": "object"}}, "guided_json"),
        ({"messages": [user("?")], "top_logprobs": 5}, "top_logprobs"),
        ({"messages": [user("?")], "function_call": {"name": "f"}}, "function_call"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "text": "?"}]}]}, "messages[0].content"),
        ({"messages": [{"role": "assistant", "function_call": {"name": "f"}}]}, "messages[0].function_call"),
        ({"messages": [user("?")], "stop": "\ud800"}, "stop"),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages[0].tool_calls"),
    ],
)
def test_unanswerable_request_names_its_field(body: Any, param: str | None) -> None:
    with pytest.raises(RequestError) as refused:
        ChatRequest.read(body)
    assert refused.value.param == param


def test_each_openai_field_is_read_ignored_or_refused() -> None:
    """The list is from OpenAI's own client; null means the same as leaving the field out."""
    fields = CompletionCreateParamsStreaming.__annotations__.keys()
    refused = {"audio", "moderation", "web_search_options"}
    for name in fields - {"messages"}:
        assert ChatRequest.read({"messages": [user("?")], name: None})
        with pytest.raises(RequestError) if name in refused else nullcontext():
            ChatRequest.read({"messages": [user("?")], name: VALUES.get(name, "any")})


def test_limits_and_stop_strings_are_read_and_sampling_is_the_runs() -> None:
    body = {
        "messages": [user("?")],
        "max_tokens": 9,
        "max_completion_tokens": 5,
        "stop": "x",
        "temperature": 0,
        "top_p": 1,
        "top_k": 5,
    }
    request = ChatRequest.read({**body, "n": 1, "logprobs": False, "tool_choice": "none", "stream": True})
    assert (request.max_tokens, request.stop, request.may_call, request.stream) == (5, ("x",), False, True)
    assert request.ignored == ("temperature", "top_p", "top_k")


# --- prompts ----------------------------------------------------------------------------------------------------------

PLAIN = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ue000\ue001"), max_size=12)
SPELLED = st.sampled_from([*MODEL.form.control_tokens, "<|endoftext|>", "<tool_call>", "\ue000", "\ue0000\ue001", "x"])


@given(st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), PLAIN), min_size=1, max_size=4))
@settings(deadline=None)
def test_the_tokens_are_those_of_the_models_own_template(messages: list[tuple[str, str]]) -> None:
    conversation = [{"role": role, "content": content.replace("<", "(")} for role, content in messages]
    found = RENDERER.render(conversation, TOOLS)
    options: dict[str, Any] = {"tools": TOOLS, "add_generation_prompt": True, "return_dict": False}
    assert found == MODEL.tokenizer.apply_chat_template(conversation, **options)


@given(st.lists(st.lists(SPELLED | PLAIN, max_size=4).map("".join), min_size=1, max_size=3))
@settings(deadline=None)
def test_control_token_spelled_in_a_message_stays_text(contents: list[str]) -> None:
    calls = [{"function": {"name": "f", "arguments": {"text": content}}} for content in contents]
    conversation = [{"role": "assistant", "content": content, "tool_calls": calls} for content in contents]
    found = RENDERER.render(conversation, ())
    special = MODEL.tokenizer.added_tokens_encoder
    assert [token for token in found if token in special.values()] == [special["<|endoftext|>"]] * (len(contents) + 1)
    rendered = "".join(MODEL.tokenizer.decode([token]) if token in special.values() else "" for token in found)
    assert rendered == "<|endoftext|>" * (len(contents) + 1)
    text = MODEL.vocabulary.decode(found)
    lines = "".join(
        f"assistant\n{content}" + "".join(f"{json.dumps(call['function'], ensure_ascii=False)}" for call in calls)
        for content in contents
    )
    assert text == f"{lines}assistant\n"


def test_a_template_that_refuses_a_conversation_says_why() -> None:
    tokenizer = copy.deepcopy(MODEL.tokenizer)
    tokenizer.chat_template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(RequestError, match="roles must alternate"):
        PromptRenderer(tokenizer, MODEL.encoder).render([user("?")], ())
    tokenizer.chat_template = "{{ 1 // (messages | length - 1) }}"
    with pytest.raises(RequestError, match="by zero"):
        PromptRenderer(tokenizer, MODEL.encoder).render([user("?")], ())
