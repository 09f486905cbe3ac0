"""The chat formats of model families whose calls have markup: Hermes and Qwen, Mistral, DeepSeek, Kimi."""

# ruff: noqa: RUF001  # DeepSeek's tokens have characters that look like others

import re
from collections.abc import Sequence
from typing import ClassVar

from torl.base.types import MalformedCall, Markup
from torl.components.formats.chat.calls import (
    BARE_CALL_TAIL,
    INVALID_CALL,
    TRUNCATED_CALL,
    ChatCall,
    make_call,
    parse_named_call,
)
from torl.components.formats.chat.chat_format import ChatFormat

_MISTRAL_CALL, _MISTRAL_ARGS = "[TOOL_CALLS]", "[ARGS]"
_DEEPSEEK_TAG = "<｜tool▁(?:call▁begin|call▁end|sep)｜>"
_KIMI_TAG = r"<\|tool_call_(?:begin|end|argument_begin)\|>"


class HermesFormat(ChatFormat):
    """Hermes' calls, also Qwen2.5's and Qwen3's: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`.

    A message of ChatML has any number of calls. Results are in one user message, each in <tool_response> tags (the
    templates of Qwen2.5 and Qwen3).
    """

    name: ClassVar[str] = "hermes"
    end_tokens = ("<|im_end|>",)
    control_tokens = ("<|im_start|>", "<|im_end|>")
    visible_tokens = ("<tool_call>", "</tool_call>")
    tags = ("<tool_call>", "</tool_call>")
    result_tags = ("<tool_response>", "</tool_response>")
    header = "\n<|im_start|>assistant\n"

    def parse_call(self, text: str) -> ChatCall:
        return ChatCall(parse_named_call(text))

    def render_results(self, calls: Sequence[ChatCall], contents: Sequence[str]) -> list[str | Markup]:
        parts: list[str | Markup] = [Markup("\n<|im_start|>user")]
        for content in contents:
            parts += [Markup("\n<tool_response>\n"), content, Markup("\n</tool_response>")]
        return [*parts, Markup("<|im_end|>")]

    def render_user(self, content: str) -> list[str | Markup]:
        return [Markup("\n<|im_start|>user\n"), content, Markup("<|im_end|>")]


class MistralFormat(ChatFormat):
    """Mistral's calls from tokenizer version 13 on: `[TOOL_CALLS]python[ARGS]{...}`, any number in a message.

    A call ends with its JSON. Results and user messages are between special tokens, and the model continues
    after them (mistral-common's `InstructTokenizerV13`).
    """

    name: ClassVar[str] = "mistral"
    tool_names = r"\S(.*\S)?"
    end_tokens = ("</s>",)
    control_tokens = (
        "</s>",
        _MISTRAL_CALL,
        _MISTRAL_ARGS,
        "[TOOL_RESULTS]",
        "[/TOOL_RESULTS]",
        "[INST]",
        "[/INST]",
    )
    visible_tokens = (_MISTRAL_CALL, _MISTRAL_ARGS)
    call_pattern = re.escape(_MISTRAL_CALL)
    call_head = re.compile(r"(?P<name>(?:(?!\[TOOL_CALLS\]|\[ARGS\]).)*)\[ARGS\]", re.DOTALL)
    call_tail = BARE_CALL_TAIL

    def parse_call(self, text: str) -> ChatCall:
        head = self.call_head.match(text)
        if head is None:
            return ChatCall(MalformedCall(TRUNCATED_CALL, f"a tool call has no {_MISTRAL_ARGS} after its name"))
        return ChatCall(make_call(head["name"].strip(), text[head.end() :]))

    def render_results(self, calls: Sequence[ChatCall], contents: Sequence[str]) -> list[str | Markup]:
        parts: list[str | Markup] = []
        for content in contents:
            parts += [Markup("[TOOL_RESULTS]"), content, Markup("[/TOOL_RESULTS]")]
        return parts

    def render_user(self, content: str) -> list[str | Markup]:
        return [Markup("[INST]"), content, Markup("[/INST]")]


class DeepSeekFormat(ChatFormat):
    """DeepSeek's calls (V3, R1): the kind of call, its tool and a fenced block of JSON, between special tokens.

    Results are between special tokens too, and the same message continues after them (the templates of V3 and R1).
    """

    name: ClassVar[str] = "deepseek"
    tool_names = r"\S([^\n]*\S)?"
    end_tokens = ("<｜end▁of▁sentence｜>",)
    control_tokens = (
        "<｜end▁of▁sentence｜>",
        "<｜User｜>",
        "<｜Assistant｜>",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁call▁end｜>",
        "<｜tool▁sep｜>",
        "<｜tool▁outputs▁begin｜>",
        "<｜tool▁outputs▁end｜>",
        "<｜tool▁output▁begin｜>",
        "<｜tool▁output▁end｜>",
    )
    visible_tokens = ("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>")
    tags = ("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>")
    surrounding = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
    call_head = re.compile(rf"\s*\w*<｜tool▁sep｜>(?P<name>(?:(?!{_DEEPSEEK_TAG})[^\n])+)\n```json\n")
    call_tail = re.compile(r"\s*\n```\s*")
    header = "<｜Assistant｜>"
    continues_after_results = True

    def parse_call(self, text: str) -> ChatCall:
        head = self.call_head.match(text)
        if head is None:
            return ChatCall(MalformedCall(INVALID_CALL, "the tool call has no name followed by a block of JSON"))
        body = text[head.end() :].rstrip()
        if not body.endswith("\n```"):
            return ChatCall(MalformedCall(INVALID_CALL, "the block of JSON of the tool call is not closed by ```"))
        return ChatCall(make_call(head["name"].strip(), body.removesuffix("```")))

    def render_results(self, calls: Sequence[ChatCall], contents: Sequence[str]) -> list[str | Markup]:
        parts: list[str | Markup] = [Markup("<｜tool▁outputs▁begin｜>")]
        for content in contents:
            parts += [Markup("<｜tool▁output▁begin｜>"), content, Markup("<｜tool▁output▁end｜>")]
        return [*parts, Markup("<｜tool▁outputs▁end｜>")]

    def render_user(self, content: str) -> list[str | Markup]:
        return [Markup("<｜User｜>"), content]


class KimiFormat(ChatFormat):
    """Kimi K2's calls: an id such as `functions.python:0` (tool and number in the conversation), then JSON.

    Each result is a separate message that repeats the id (K2's template).
    """

    name: ClassVar[str] = "kimi"
    tool_names = r"[^\s:]+"
    end_tokens = ("<|im_end|>",)
    control_tokens = (
        "<|im_end|>",
        "<|im_system|>",
        "<|im_user|>",
        "<|im_assistant|>",
        "<|im_middle|>",
        "<|tool_call_begin|>",
        "<|tool_call_end|>",
        "<|tool_call_argument_begin|>",
    )
    visible_tokens = ("<|tool_call_begin|>", "<|tool_call_end|>", "<|tool_call_argument_begin|>")
    tags = ("<|tool_call_begin|>", "<|tool_call_end|>")
    surrounding = ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>")
    call_head = re.compile(
        rf"\s*(?P<id>functions\.(?P<name>(?:(?!{_KIMI_TAG})[^\s:])+):\d+)\s*<\|tool_call_argument_begin\|>"
    )
    header = "<|im_assistant|>assistant<|im_middle|>"

    def parse_call(self, text: str) -> ChatCall:
        head = self.call_head.match(text)
        if head is None:
            problem = "the tool call has no id such as functions.NAME:0 before <|tool_call_argument_begin|>"
            return ChatCall(MalformedCall(INVALID_CALL, problem))
        return ChatCall(make_call(head["name"], text[head.end() :]), id=head["id"])

    def render_results(self, calls: Sequence[ChatCall], contents: Sequence[str]) -> list[str | Markup]:
        parts: list[str | Markup] = []
        for call, content in zip(calls, contents, strict=True):
            header = f"## Return of {call.id}\n"
            parts += [Markup("<|im_system|>tool<|im_middle|>"), header, content, Markup("<|im_end|>")]
        return parts

    def render_user(self, content: str) -> list[str | Markup]:
        return [Markup("<|im_user|>user<|im_middle|>"), content, Markup("<|im_end|>")]
