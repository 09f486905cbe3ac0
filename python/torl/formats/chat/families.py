"""The chat formats of model families: Hermes and Qwen, Llama, Mistral, DeepSeek, Kimi."""

# ruff: noqa: RUF001  # DeepSeek's tokens have characters that look like others

import json
import re
from collections.abc import Sequence
from typing import ClassVar

from torl.formats.blocks import run_block
from torl.formats.chat.base import ChatCall, ChatFormat
from torl.formats.chat.calls import INVALID_CALL, TRUNCATED_CALL, make_call, parse_named_call
from torl.types import MalformedCall, Markup, Turn

_PYTHON_TAG = "<|python_tag|>"
_MISTRAL_CALL, _MISTRAL_ARGS = "[TOOL_CALLS]", "[ARGS]"
_DEEPSEEK_CALL = re.compile(r"\s*\w*<｜tool▁sep｜>([^\n]+)\n```json\n(.*)\n```\s*", re.DOTALL)
_KIMI_CALL = re.compile(r"\s*(functions\.([^\s:]+):\d+)\s*<\|tool_call_argument_begin\|>(.*)", re.DOTALL)


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


class LlamaFormat(ChatFormat):
    """Llama 3's calls (3.1 to 3.3): a message `{"name": ..., "parameters": {...}}`, one in a turn.

    <|python_tag|> is followed by such an object, or by code for the tool "python". The result is a JSON string in a
    message of the role "ipython" (the template of Llama 3.1).
    """

    name: ClassVar[str] = "llama3"
    end_tokens = ("<|eot_id|>", "<|eom_id|>")
    control_tokens = ("<|eot_id|>", "<|eom_id|>", "<|start_header_id|>", "<|end_header_id|>", _PYTHON_TAG)
    visible_tokens = (_PYTHON_TAG,)
    header = "<|start_header_id|>assistant<|end_header_id|>\n\n"

    def calls(self, turn: Turn) -> Sequence[ChatCall]:
        _, tag, tail = turn.text.partition(_PYTHON_TAG)
        text = (tail if tag else turn.text).strip()
        if not tag and not text.startswith("{"):
            return []
        request = parse_named_call(text, "parameters")
        if isinstance(request, MalformedCall):
            if tag and not text.startswith("{"):
                return [ChatCall(run_block(text))]
            if not tag and '"name"' not in text:
                return []  # text that begins with a brace, such as a set
        return [ChatCall(request)]

    def content(self, turn: Turn) -> str:
        before, tag, _ = super().content(turn).partition(_PYTHON_TAG)
        return before.strip() if tag or not self.calls(turn) else ""

    def render_results(self, calls: Sequence[ChatCall], contents: Sequence[str]) -> list[str | Markup]:
        parts: list[str | Markup] = []
        for content in contents:
            parts += [
                Markup("<|start_header_id|>ipython<|end_header_id|>\n\n"),
                json.dumps(content, ensure_ascii=False),
            ]
            parts.append(Markup("<|eot_id|>"))
        return parts

    def render_user(self, content: str) -> list[str | Markup]:
        return [Markup("<|start_header_id|>user<|end_header_id|>\n\n"), content.strip(), Markup("<|eot_id|>")]


class MistralFormat(ChatFormat):
    """Mistral's calls from tokenizer version 13 on: `[TOOL_CALLS]python[ARGS]{...}`, several at the end of a message.

    Only the next call closes a call. Results and user messages are between special tokens, and the model continues
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

    def calls(self, turn: Turn) -> Sequence[ChatCall]:
        return [self.parse_call(text) for text in turn.text.split(_MISTRAL_CALL)[1:]]

    def content(self, turn: Turn) -> str:
        return super().content(turn).partition(_MISTRAL_CALL)[0].strip()

    def parse_call(self, text: str) -> ChatCall:
        name, separator, arguments = text.partition(_MISTRAL_ARGS)
        if not separator:
            return ChatCall(MalformedCall(TRUNCATED_CALL, f"a tool call has no {_MISTRAL_ARGS}"))
        return ChatCall(make_call(name.strip(), arguments))

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
    header = "<｜Assistant｜>"
    continues_after_results = True

    def parse_call(self, text: str) -> ChatCall:
        call = _DEEPSEEK_CALL.fullmatch(text)
        if call is None:
            return ChatCall(MalformedCall(INVALID_CALL, "the tool call has no name followed by a block of JSON"))
        return ChatCall(make_call(call[1].strip(), call[2]))

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
    header = "<|im_assistant|>assistant<|im_middle|>"

    def parse_call(self, text: str) -> ChatCall:
        call = _KIMI_CALL.fullmatch(text)
        if call is None:
            return ChatCall(MalformedCall(INVALID_CALL, "the tool call has no id such as functions.NAME:0"))
        return ChatCall(make_call(call[2], call[3]), id=call[1])

    def render_results(self, calls: Sequence[ChatCall], contents: Sequence[str]) -> list[str | Markup]:
        parts: list[str | Markup] = []
        for call, content in zip(calls, contents, strict=True):
            header = f"## Return of {call.id}\n"
            parts += [Markup("<|im_system|>tool<|im_middle|>"), header, content, Markup("<|im_end|>")]
        return parts

    def render_user(self, content: str) -> list[str | Markup]:
        return [Markup("<|im_user|>user<|im_middle|>"), content, Markup("<|im_end|>")]
