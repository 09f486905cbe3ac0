"""gpt-oss' calls, in the response format Harmony."""

import json
import re
from collections.abc import Sequence
from typing import ClassVar

from torl.formats.chat.base import ChatCall, ChatFormat, ChatOptions
from torl.formats.chat.json_calls import INVALID_CALL, make_call
from torl.formats.fenced import PYTHON, run_block
from torl.types import MalformedCall, Markup, Turn

_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
_NAMESPACE = "functions."


class HarmonyOptions(ChatOptions):
    """Options of the format "harmony"."""

    quoted: bool = False
    """Results as JSON strings, as the template on Hugging Face's hub has them; OpenAI's own library does not quote."""


class HarmonyFormat(ChatFormat):
    """A turn is a row of messages; one that is addressed to a tool and ended by <|call|> calls it, and ends the turn.

    `to=functions.NAME` has JSON for its arguments, `to=python` is code. The result is a message of the tool to the
    assistant (as OpenAI's library openai-harmony writes it).
    """

    name: ClassVar[str] = "harmony"
    end_tokens = ("<|call|>", "<|return|>")
    control_tokens = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>")
    visible_tokens = ("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|call|>")
    header = "<|start|>assistant"

    def __init__(self, options: HarmonyOptions | None = None) -> None:
        """Take the options of a configuration, or the defaults."""
        options = options or HarmonyOptions()
        super().__init__(options)
        self._quoted = options.quoted

    @property
    def message_end(self) -> str:
        """Of a message that others follow."""
        return "<|end|>"

    def calls(self, turn: Turn) -> Sequence[ChatCall]:
        """The last message, if it is a call."""
        if not turn.text.endswith("<|call|>"):
            return []
        message = turn.text.removesuffix("<|call|>").rpartition("<|start|>")[2]
        header, _, content = message.partition("<|message|>")
        recipient = _RECIPIENT.search(header)
        if recipient is None:
            return [ChatCall(MalformedCall(INVALID_CALL, "the tool call has no recipient such as to=functions.NAME"))]
        name = recipient[1]
        if name == PYTHON:
            return [ChatCall(run_block(content), name=name)]
        return [ChatCall(make_call(name.removeprefix(_NAMESPACE), content), name=name)]

    def supports_tool(self, tool: str) -> bool:
        """A recipient ends at a blank or a bracket."""
        return super().supports_tool(tool) and _RECIPIENT.fullmatch(f"to={tool}") is not None

    def content(self, turn: Turn) -> str:
        """The messages to the user: those without a recipient, on another channel than the analysis."""
        said = []
        for message in turn.text.split("<|start|>"):
            header, _, content = message.partition("<|message|>")
            if _RECIPIENT.search(header) is None and "<|channel|>analysis" not in header:
                said.append(content.removesuffix("<|end|>").strip())
        return "\n".join(filter(None, said))

    def render_results(self, calls: Sequence[ChatCall], contents: Sequence[str]) -> list[str | Markup]:
        """A message from the tool, on the channel of the calls."""
        parts: list[str | Markup] = []
        for call, content in zip(calls, contents, strict=True):
            sender = call.name or "functions.unknown"
            parts += [Markup("<|start|>"), f"{sender} to=assistant", Markup("<|channel|>commentary<|message|>")]
            parts += [json.dumps(content, ensure_ascii=False) if self._quoted else content, Markup("<|end|>")]
        return parts

    def render_user(self, content: str) -> list[str | Markup]:
        """A message without a channel; the model's own before it keeps the <|return|> that it was sampled with."""
        return [Markup("<|start|>user<|message|>"), content, Markup("<|end|>")]
