"""DeepSeek's calls (V3, R1)."""

# ruff: noqa: RUF001  # its tokens are written with other characters than they seem

import re
from collections.abc import Sequence
from typing import ClassVar

from torl.formats.chat.base import ChatCall, ChatFormat
from torl.formats.chat.json_calls import INVALID_CALL, make_call
from torl.types import MalformedCall, Markup

_CALL = re.compile(r"\s*\w*<｜tool▁sep｜>([^\n]+)\n```json\n(.*)\n```\s*", re.DOTALL)


class DeepSeekFormat(ChatFormat):
    """The kind of call, its tool and a fenced block of JSON, between tokens of their own.

    The results stand between tokens as well, and the same message goes on behind them (the templates of V3 and R1).
    """

    name: ClassVar[str] = "deepseek"
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
        """The tool's name behind the separator, its arguments in the block."""
        call = _CALL.fullmatch(text)
        if call is None:
            return ChatCall(MalformedCall(INVALID_CALL, "the tool call has no name with a block of JSON behind it"))
        return ChatCall(make_call(call[1].strip(), call[2]))

    def supports_tool(self, tool: str) -> bool:
        """A name is a line, without the blanks around it."""
        return super().supports_tool(tool) and "\n" not in tool and tool == tool.strip()

    def render_results(self, calls: Sequence[ChatCall], contents: Sequence[str]) -> list[str | Markup]:
        """All of them between two tokens, and each between two more."""
        parts: list[str | Markup] = [Markup("<｜tool▁outputs▁begin｜>")]
        for content in contents:
            parts += [Markup("<｜tool▁output▁begin｜>"), content, Markup("<｜tool▁output▁end｜>")]
        return [*parts, Markup("<｜tool▁outputs▁end｜>")]

    def render_user(self, content: str) -> list[str | Markup]:
        """Nothing closes it but the header that follows."""
        return [Markup("<｜User｜>"), content]
