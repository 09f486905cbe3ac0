"""Messages of the model as a program is told them, and what a program's answer puts in behind one."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from torl.formats.chat import ChatFormat
from torl.formats.chat.base import ChatCall
from torl.types import Markup, ToolRequest, Turn

_THOUGHT_BEGINS, _THOUGHT_ENDS = "<think>", "</think>"


def valid_calls(calls: Sequence[ChatCall]) -> list[ChatCall]:
    """The calls that can be made; a message that holds another is told to the program as it was written."""
    return [call for call in calls if isinstance(call.request, ToolRequest)]


def message_of(
    form: ChatFormat, turn: Turn, calls: Sequence[ChatCall], ids: Sequence[str], stop: Sequence[str]
) -> Mapping[str, Any]:
    """The message of a turn in OpenAI's words; thinking stands apart, as `reasoning_content`.

    Args:
        form: of the model.
        turn: that was sampled.
        calls: in it, that the program is told of.
        ids: what they are called, one for each.
        stop: strings that may have ended the turn; the content ends before one.
    """
    thought, ends, behind = turn.text.partition(_THOUGHT_ENDS)
    content = form.content(turn) if len(calls) == len(form.calls(turn)) else (behind if ends else turn.text).strip()
    content = min((content.partition(each)[0] for each in stop), key=len, default=content)
    message: dict[str, Any] = {"role": "assistant", "content": content if content or not calls else None}
    if ends:
        message["reasoning_content"] = thought.strip().removeprefix(_THOUGHT_BEGINS).strip()
    if calls:
        message["tool_calls"] = [_told(call, id) for call, id in zip(calls, ids, strict=True)]
    return message


def continuation_parts(
    form: ChatFormat, calls: Sequence[ChatCall], contents: Sequence[str], said: Sequence[str], *, ended: bool
) -> list[str | Markup]:
    """What stands between a message of the model and its next one.

    Args:
        form: of the model.
        calls: of the message that have been answered.
        contents: their results, one for each.
        said: what a user says then.
        ended: whether the model has sampled the end of its message; that of one which was cut is put in.
    """
    parts = form.continuation(calls, contents, said)
    return parts if ended else [Markup(form.message_end), *parts]


def _told(call: ChatCall, id: str) -> dict[str, Any]:
    assert isinstance(call.request, ToolRequest)
    arguments = json.dumps(dict(call.request.arguments), ensure_ascii=False)
    return {"id": id, "type": "function", "function": {"name": call.request.tool, "arguments": arguments}}
