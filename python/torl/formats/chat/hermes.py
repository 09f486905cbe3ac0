"""Hermes' calls, which Qwen2.5 and Qwen3 make as well."""

from collections.abc import Sequence
from typing import ClassVar

from torl.formats.chat.base import ChatCall, ChatFormat
from torl.formats.chat.json_calls import parse_named_call
from torl.types import Markup


class HermesFormat(ChatFormat):
    """`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, any number of them in a message of ChatML.

    The results stand in one message of the user, each in <tool_response> tags (the templates of Qwen2.5 and Qwen3).
    """

    name: ClassVar[str] = "hermes"
    end_tokens = ("<|im_end|>",)
    control_tokens = ("<|im_start|>", "<|im_end|>")
    visible_tokens = ("<tool_call>", "</tool_call>")
    tags = ("<tool_call>", "</tool_call>")
    header = "\n<|im_start|>assistant\n"

    def parse_call(self, text: str) -> ChatCall:
        """An object with "name" and "arguments"."""
        return ChatCall(parse_named_call(text))

    def render_results(self, calls: Sequence[ChatCall], contents: Sequence[str]) -> list[str | Markup]:
        """One message for all results."""
        parts: list[str | Markup] = [Markup("\n<|im_start|>user")]
        for content in contents:
            parts += [Markup("\n<tool_response>\n"), content, Markup("\n</tool_response>")]
        return [*parts, Markup("<|im_end|>")]

    def render_user(self, content: str) -> list[str | Markup]:
        """A message of ChatML."""
        return [Markup("\n<|im_start|>user\n"), content, Markup("<|im_end|>")]
