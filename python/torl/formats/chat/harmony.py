"""The chat format of gpt-oss: Harmony."""

import json
import re
from collections.abc import Sequence
from typing import ClassVar

from torl.formats.blocks import PYTHON, run_block
from torl.formats.chat.base import ChatCall, ChatFormat, ChatOptions
from torl.formats.chat.calls import INVALID_CALL, make_call
from torl.types import MalformedCall, Markup, Turn

_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
_NAMESPACE = "functions."


class HarmonyOptions(ChatOptions):
    """Options of the format "harmony"."""

    quoted: bool = False
    """Write results as JSON strings, as the template on the Hugging Face Hub does; OpenAI's own library does not."""


class HarmonyFormat(ChatFormat):
    """gpt-oss' calls: a turn is a row of messages; one to a tool that <|call|> ends is a call, and ends the turn.

    A message `to=functions.NAME` has JSON arguments, one `to=python` is code. The result is a message of the tool to
    the assistant, as OpenAI's library openai-harmony writes it.
    """

    name: ClassVar[str] = "harmony"
    end_tokens = ("<|call|>", "<|return|>")
    control_tokens = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>")
    visible_tokens = ("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|call|>")
    header = "<|start|>assistant"
    tool_names = r"[^\s<]+"

    def __init__(self, options: HarmonyOptions | None = None) -> None:
        options = options or HarmonyOptions()
        super().__init__(options)
        self._quoted = options.quoted

    @property
    def message_end(self) -> str:
        return "<|end|>"

    def calls(self, turn: Turn) -> Sequence[ChatCall]:
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

    def content(self, turn: Turn) -> str:
        messages = []
        for message in turn.text.split("<|start|>"):
            header, _, content = message.partition("<|message|>")
            if _RECIPIENT.search(header) is None and "<|channel|>analysis" not in header:
                messages.append(content.removesuffix("<|end|>").strip())
        return "\n".join(filter(None, messages))

    def render_results(self, calls: Sequence[ChatCall], contents: Sequence[str]) -> list[str | Markup]:
        parts: list[str | Markup] = []
        for call, content in zip(calls, contents, strict=True):
            sender = call.name or "functions.unknown"
            parts += [Markup("<|start|>"), f"{sender} to=assistant", Markup("<|channel|>commentary<|message|>")]
            parts += [json.dumps(content, ensure_ascii=False) if self._quoted else content, Markup("<|end|>")]
        return parts

    def render_user(self, content: str) -> list[str | Markup]:
        return [Markup("<|start|>user<|message|>"), content, Markup("<|end|>")]
