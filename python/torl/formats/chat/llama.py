"""Llama 3's calls (3.1 to 3.3)."""

import json
from collections.abc import Sequence
from typing import ClassVar

from torl.formats.chat.base import ChatCall, ChatFormat
from torl.formats.chat.json_calls import parse_named_call
from torl.formats.fenced import run_block
from torl.types import MalformedCall, Markup, Turn

_PYTHON_TAG = "<|python_tag|>"


class LlamaFormat(ChatFormat):
    """A message that is `{"name": ..., "parameters": {...}}` calls a tool, one in a turn.

    Behind <|python_tag|> stands such an object, or code for the tool "python". The result is a message of the role
    "ipython", a JSON string (the template of Llama 3.1).
    """

    name: ClassVar[str] = "llama3"
    end_tokens = ("<|eot_id|>", "<|eom_id|>")
    control_tokens = ("<|eot_id|>", "<|eom_id|>", "<|start_header_id|>", "<|end_header_id|>", _PYTHON_TAG)
    visible_tokens = (_PYTHON_TAG,)
    header = "<|start_header_id|>assistant<|end_header_id|>\n\n"

    def calls(self, turn: Turn) -> Sequence[ChatCall]:
        """The message as a whole, or what stands behind the tag."""
        _, tag, behind = turn.text.partition(_PYTHON_TAG)
        text = (behind if tag else turn.text).strip()
        if not tag and not text.startswith("{"):
            return []
        request = parse_named_call(text, "parameters")
        if isinstance(request, MalformedCall):
            if tag and not text.startswith("{"):
                return [ChatCall(run_block(text))]
            if not tag and '"name"' not in text:
                return []  # an answer that begins with a brace: a set, say
        return [ChatCall(request)]

    def content(self, turn: Turn) -> str:
        """Nothing, where the whole message is a call."""
        before, tag, _ = super().content(turn).partition(_PYTHON_TAG)
        return before.strip() if tag or not self.calls(turn) else ""

    def render_results(self, calls: Sequence[ChatCall], contents: Sequence[str]) -> list[str | Markup]:
        """The result in quotes."""
        parts: list[str | Markup] = []
        for content in contents:
            parts += [
                Markup("<|start_header_id|>ipython<|end_header_id|>\n\n"),
                json.dumps(content, ensure_ascii=False),
            ]
            parts.append(Markup("<|eot_id|>"))
        return parts

    def render_user(self, content: str) -> list[str | Markup]:
        """The template takes blanks away from around it."""
        return [Markup("<|start_header_id|>user<|end_header_id|>\n\n"), content.strip(), Markup("<|eot_id|>")]
