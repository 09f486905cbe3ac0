"""Kimi K2's calls."""

import re
from collections.abc import Sequence
from typing import ClassVar

from torl.formats.chat.base import ChatCall, ChatFormat
from torl.formats.chat.json_calls import INVALID_CALL, make_call
from torl.types import MalformedCall, Markup

_CALL = re.compile(r"\s*(functions\.([^\s:]+):\d+)\s*<\|tool_call_argument_begin\|>(.*)", re.DOTALL)


class KimiFormat(ChatFormat):
    """`functions.python:0` is the call's id: its tool, and its number in the conversation; JSON follows.

    Each result is a message of its own that repeats the id (K2's template).
    """

    name: ClassVar[str] = "kimi"
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
        """The id, then the arguments."""
        call = _CALL.fullmatch(text)
        if call is None:
            return ChatCall(MalformedCall(INVALID_CALL, "the tool call has no id such as functions.NAME:0"))
        return ChatCall(make_call(call[2], call[3]), id=call[1])

    def supports_tool(self, tool: str) -> bool:
        """An id has no blanks, and one colon."""
        return super().supports_tool(tool) and re.fullmatch(r"[^\s:]+", tool) is not None

    def render_results(self, calls: Sequence[ChatCall], contents: Sequence[str]) -> list[str | Markup]:
        """A message for each result."""
        parts: list[str | Markup] = []
        for call, content in zip(calls, contents, strict=True):
            header = f"## Return of {call.id}\n"
            parts += [Markup("<|im_system|>tool<|im_middle|>"), header, content, Markup("<|im_end|>")]
        return parts

    def render_user(self, content: str) -> list[str | Markup]:
        """Its role stands between tokens."""
        return [Markup("<|im_user|>user<|im_middle|>"), content, Markup("<|im_end|>")]
