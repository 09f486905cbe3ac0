"""Mistral's calls, as its tokenizers write them from version 13 on."""

from collections.abc import Sequence
from typing import ClassVar

from torl.formats.chat.base import TRUNCATED_CALL, ChatCall, ChatFormat
from torl.formats.chat.json_calls import make_call
from torl.types import MalformedCall, Markup, Turn

_CALL, _ARGUMENTS = "[TOOL_CALLS]", "[ARGS]"


class MistralFormat(ChatFormat):
    """`[TOOL_CALLS]python[ARGS]{...}`, any number of them at the end of a message; nothing closes a call but the next.

    Results and what a user says stand between tokens, and the model goes on behind them (mistral-common's
    `InstructTokenizerV13`).
    """

    name: ClassVar[str] = "mistral"
    end_tokens = ("</s>",)
    control_tokens = ("</s>", _CALL, _ARGUMENTS, "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[INST]", "[/INST]")
    visible_tokens = (_CALL, _ARGUMENTS)

    def calls(self, turn: Turn) -> Sequence[ChatCall]:
        """What stands behind each opening token."""
        return [self.parse_call(text) for text in turn.text.split(_CALL)[1:]]

    def content(self, turn: Turn) -> str:
        """What stands before the first call."""
        return super().content(turn).partition(_CALL)[0].strip()

    def parse_call(self, text: str) -> ChatCall:
        """The tool's name, then its arguments."""
        name, separator, arguments = text.partition(_ARGUMENTS)
        if not separator:
            return ChatCall(MalformedCall(TRUNCATED_CALL, f"a tool call has no {_ARGUMENTS}"))
        return ChatCall(make_call(name.strip(), arguments))

    def supports_tool(self, tool: str) -> bool:
        """Blanks around a name are none of it."""
        return super().supports_tool(tool) and tool == tool.strip()

    def render_results(self, calls: Sequence[ChatCall], contents: Sequence[str]) -> list[str | Markup]:
        """Between tokens, one by one."""
        parts: list[str | Markup] = []
        for content in contents:
            parts += [Markup("[TOOL_RESULTS]"), content, Markup("[/TOOL_RESULTS]")]
        return parts

    def render_user(self, content: str) -> list[str | Markup]:
        """Between tokens, as everything."""
        return [Markup("[INST]"), content, Markup("[/INST]")]
