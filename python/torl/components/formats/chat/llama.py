"""The chat format of Llama 3."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torl.base.types import Markup, ToolRequest
from torl.base.types.tools import ARGUMENT_KEYS
from torl.components.formats.blocks import run_block
from torl.components.formats.chat.calls import BARE_CALL_TAIL, ChatCall, json_end, parse_named_call, parse_object
from torl.components.formats.chat.chat_format import ChatFormat

_PYTHON_TAG = "<|python_tag|>"
_SPACE = re.compile(r"\s*")
_KEYS = frozenset(ARGUMENT_KEYS)
_BEGUN = re.compile(r'\{\s*"name"\s*:\s*"[^"]*"\s*,\s*"(?:arguments|parameters)"\s*:\s*\{')


@dataclass(frozen=True, slots=True)
class _Object:
    """An object in a message, which may be a call.

    Attributes:
        start: Place of its first character.
        stop: Place after it, or where it is no longer JSON.
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
