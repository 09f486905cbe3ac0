"""The chat format of gpt-oss: Harmony."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

from torl.base.types import MalformedCall, Markup
from torl.components.formats.blocks import PYTHON, run_block
from torl.components.formats.chat.calls import INVALID_CALL, ChatCall, ChatMessage, json_end, make_call
from torl.components.formats.chat.chat_format import ChatFormat

_START, _MESSAGE, _CALL = "<|start|>", "<|message|>", "<|call|>"
_HEADER_END = re.compile(r"<\|(?:message|start)\|>|<\|call\|>\Z|\Z")
_CONTENT_END = re.compile(r"<\|(?:end|call)\|>(?=<\|start\|>assistant|\Z)|(?=<\|start\|>assistant)|\Z")
_CALL_END = re.compile(r"<\|(?:end|call)\|>(?=<\|start\|>assistant|\Z)|\Z")  # code may have <|start|>
_TOKEN = re.compile(r"<\|\w+\|>")
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
_NAMESPACE = "functions."


class HarmonyFormat(ChatFormat):
    """gpt-oss' calls: a turn is a row of messages; one to a tool that <|call|> ends is a call, and ends the turn.

    A message `to=functions.NAME` has JSON arguments, one `to=python` is code. Thinking is in messages of the channel
    "analysis". The result is a message of the tool to the assistant, as OpenAI's library openai-harmony writes it; the
    template on the Hugging Face Hub writes it as a JSON string.
    """

    name: ClassVar[str] = "harmony"
    end_tokens = ("<|call|>", "<|return|>")
    control_tokens = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>")
    visible_tokens = ("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|call|>")
    header = "<|start|>assistant"
    tool_names = r"[^\s<]+"

    @property
    def message_end(self) -> str:
        return "<|end|>"

    def read_message(self, text: str) -> ChatMessage:
        return ChatMessage([*self._read_messages(text)])

    def _read_messages(self, text: str) -> Iterator[str | ChatCall]:
        """Yield what the messages of a turn show, and the call at its end."""
        position = 0
        while position < len(text):
            begin = position + len(_START) * text.startswith(_START, position)
            mark = _search(_HEADER_END, text, begin)
            header, start = text[begin : mark.start()], mark.start() + len(_MESSAGE) * (mark[0] == _MESSAGE)
            recipient = _RECIPIENT.search(header)
            stop, is_json = (start, False) if recipient is None else json_end(text, start)
            end = _search(_CONTENT_END if recipient is None else _CALL_END, text, stop if is_json else start)
            content, position = text[start : end.start()], end.end()
            if end[0] == _CALL and position == len(text):
                written = f"{_TOKEN.sub(' ', header).strip()} {content}"
                yield replace(self._read_call(recipient, content), text=written)
            elif mark[0] != _MESSAGE and begin == 0 and "<|channel|>" not in header:
                yield header  # a text without messages
            elif recipient is None and "<|channel|>analysis" not in header:
                yield f"{content.strip()}\n"

    def _read_call(self, recipient: re.Match[str] | None, content: str) -> ChatCall:
        if recipient is None:
            return ChatCall(MalformedCall(INVALID_CALL, "the tool call has no recipient such as to=functions.NAME"))
        name = recipient[1]
        if name == PYTHON:
            return ChatCall(run_block(content), name=name)
        return ChatCall(make_call(name.removeprefix(_NAMESPACE), content), name=name)

    def render_results(self, calls: Sequence[ChatCall], contents: Sequence[str]) -> list[str | Markup]:
        parts: list[str | Markup] = []
        for call, content in zip(calls, contents, strict=True):
            sender = call.name or "functions.unknown"
            parts += [Markup("<|start|>"), f"{sender} to=assistant", Markup("<|channel|>commentary<|message|>")]
            parts += [content, Markup("<|end|>")]
        return parts

    def render_user(self, content: str) -> list[str | Markup]:
        return [Markup("<|start|>user<|message|>"), content, Markup("<|end|>")]


def _search(pattern: re.Pattern[str], text: str, start: int) -> re.Match[str]:
    """Return the first match of a pattern that matches the end of a text."""
    match = pattern.search(text, start)
    assert match is not None, f"{pattern.pattern} does not match the end"
    return match
