"""Chat formats whose messages have headers: Harmony (gpt-oss), and Llama 3."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from torl.base.types import MalformedCall, Markup, ToolRequest
from torl.base.types.turns import ARGUMENT_KEYS
from torl.components.formats.blocks import PYTHON, run_block
from torl.components.formats.chat.calls import (
    BARE_CALL_TAIL,
    INVALID_CALL,
    ChatCall,
    ChatMessage,
    json_end,
    make_call,
    parse_named_call,
    parse_object,
)
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


_PYTHON_TAG = "<|python_tag|>"
_SPACE = re.compile(r"\s*")
_KEYS = frozenset(ARGUMENT_KEYS)
_BEGUN = re.compile(r'\{\s*"name"\s*:\s*"[^"]*"\s*,\s*"(?:arguments|parameters)"\s*:\s*\{')


@dataclass(frozen=True, slots=True)
class _Object:
    """An object in a message, which may be a call.

    Attributes:
        start: Place of its first character.
        stop: Index after the JSON, or of the first character that is not JSON.
        end: Place after the call that it would be.
        is_whole: Whether it is complete.
        is_tagged: Whether it follows <|python_tag|>.
        is_call: Whether it is a call, perhaps a malformed one, and no other object: it begins the message and has a
            name, or it is a call that can be made and names its arguments, or it begins as one and is not JSON. An
            answer may quote others, such as a tool's schema.
    """

    start: int
    stop: int
    end: int
    is_whole: bool
    is_tagged: bool
    is_call: bool

    @classmethod
    def at(cls, text: str, opening: re.Match[str]) -> "_Object":
        """Return the object that begins at `{` or after <|python_tag|>."""
        is_tagged = opening[0] != "{"
        start = opening.end() if is_tagged else opening.start()
        stop, is_whole = json_end(text, start)
        tail = BARE_CALL_TAIL.match(text, stop) if is_whole else None
        end = len(text) if tail is None else tail.end()
        is_call = is_tagged
        if not is_tagged and _SPACE.match(text).end() == start:  # type: ignore[union-attr]  # it matches anywhere
            is_call = '"name"' in text[start:end]
        elif not is_tagged and tail is not None:
            value, call = parse_object(text[start:stop]), parse_named_call(text[start:stop], "parameters")
            is_call = isinstance(call, ToolRequest) and isinstance(value, dict) and not _KEYS.isdisjoint(value)
        elif not is_tagged:
            is_call = _BEGUN.match(text, start) is not None
        return cls(start, stop, end, tail is not None, is_tagged, is_call)


class LlamaFormat(ChatFormat):
    """Llama 3's calls (3.1 to 3.3): an object `{"name": ..., "parameters": {...}}`, usually all of a message.

    <|python_tag|> is followed by such an object, or by code for the tool "python". The result is a JSON string in a
    message of the role "ipython" (the template of Llama 3.1).
    """

    name: ClassVar[str] = "llama3"
    end_tokens = ("<|eot_id|>", "<|eom_id|>")
    control_tokens = ("<|eot_id|>", "<|eom_id|>", "<|start_header_id|>", "<|end_header_id|>", _PYTHON_TAG)
    visible_tokens = (_PYTHON_TAG,)
    call_pattern = re.escape(_PYTHON_TAG) + r'\s*|\{(?=\s*")'
    header = "<|start_header_id|>assistant<|end_header_id|>\n\n"

    def read_call(self, text: str, opening: re.Match[str], *, thinks: bool = False) -> tuple[ChatCall | None, int]:
        found = _Object.at(text, opening)
        if found.is_whole and found.is_call:
            request = parse_named_call(text[found.start : found.stop], "parameters")
            if isinstance(request, ToolRequest):
                return ChatCall(request), found.end
        if found.is_tagged and not thinks and not text.startswith("{", found.start):
            return ChatCall(run_block(text[found.start :].strip())), len(text)
        return None, opening.end() if found.is_tagged else max(opening.end(), found.stop)

    def read_malformed_call(self, text: str, opening: re.Match[str]) -> tuple[ChatCall | None, int]:
        found = _Object.at(text, opening)
        if not found.is_call:
            return None, max(opening.end(), found.stop)
        return ChatCall(parse_named_call(text[found.start : found.end], "parameters")), found.end

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
