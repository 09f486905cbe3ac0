"""Conversations of examples, in OpenAI's and in ShareGPT's format, as messages for chat templates."""

import json
import re
from collections.abc import Mapping
from itertools import cycle
from types import MappingProxyType
from typing import Any, TypeAlias

from torl.base.errors import DataError
from torl.components.data.example_tools import read_call, read_objects, written_calls
from torl.components.data.rows import (
    SYSTEM_FIELDS,
    describe,
    has_value,
    is_given,
    is_missing,
    read_mark,
    require_harmless,
)
from torl.components.data.values import name_columns
from torl.components.text.example_encoder import REASONING

Messages: TypeAlias = tuple[tuple[Mapping[str, Any], ...], tuple[float, ...]]
"""Messages as chat templates read them, and the weight of the loss of each."""

_ROLES = MappingProxyType(
    {
        **{role: role for role in ("system", "user", "assistant", "tool")},
        "developer": "system",
        "function": "tool",
    }
)
# ShareGPT's names, with those of LLaMA-Factory for tools.
_SPEAKERS = MappingProxyType(
    {
        **_ROLES,
        "human": "user",
        "gpt": "assistant",
        "model": "assistant",
        "function_call": "assistant",
        "observation": "tool",
        "function_response": "tool",
        "ipython": "tool",
    }
)
_MARKS = ("loss", "training", "train")
"""Fields of a message that is not trained if one of them is false: AgentInstruct's, and Axolotl's."""
_MARKED = frozenset(("weight", *_MARKS))
_CALLS = ("tool_calls", "function_call")
_READ = frozenset(("role", "content", *_MARKED, *_CALLS))
"""Fields of a message that do not reach the chat template as they are."""
_TEXTS = ("text", "value", "content")
"""Names of the text of a part of a message."""
_RESULT = re.compile(r"<tool_response>((?:(?!</?tool_response>).)*)</tool_response>", re.DOTALL)
_RESULTS = re.compile(rf"(?:\s*{_RESULT.pattern})+\s*", re.DOTALL)


def read_messages(location: str, field: str, messages: Any, unread: set[str], *, trained: bool = True) -> Messages:
    """Read messages in OpenAI's format. Only messages of the model have a weight, 1 unless a message has its own.

    The weight of an empty message is 0: the model would learn to end at once. Arguments of tool calls become objects,
    because chat templates write them as JSON. Fields that are null are dropped, and `function_call`, OpenAI's older
    form, becomes a tool call. Fields that are not known here reach the chat template.

    Args:
        location: Location of the row, for errors.
        field: Field of the messages.
        messages: Value of the field, or its JSON.
        unread: Set that receives the names of fields that are not read.
        trained: Whether messages of the model are trained.

    Raises:
        DataError: A message is invalid, or a field would change the prompt or the loss and is not read.
    """
    read, weights = [], []
    for place, message in enumerate(read_objects(location, field, messages)):
        where = f"{location}: {field}[{place}]"
        role = message.get("role")
        if not isinstance(role, str) or role not in _ROLES:
            raise DataError(f"{where}: 'role' must be one of {', '.join(_ROLES)}, got {role!r}")
        role = _ROLES[role]
        fields = {name: value for name, value in message.items() if name not in _READ and has_value(value)}
        for name, value in fields.items():
            require_harmless(where, name, value)
        calls = _calls(where, role, message, unread)
        fields |= {"role": role, "content": _content(where, role, message)}
        reasoning = [name for name in REASONING if name in fields]
        for name in reasoning:
            if not isinstance(fields[name], str):
                raise DataError(f"{where}: {name!r} must be text, got {describe(fields[name])}")
        if calls:
            fields["tool_calls"] = calls
        read.append(fields)
        weight = _weight(where, message, is_trained=trained and role == "assistant")
        is_empty = not (calls or reasoning or has_value(fields["content"]))
        weights.append(0.0 if is_empty else weight)
    return tuple(read), tuple(weights)


def read_conversation(location: str, conversation: Any, unread: set[str]) -> Messages:
    """Read a conversation in ShareGPT's format, with LLaMA-Factory's `function_call` and `observation`.

    Turns with `role` are messages in OpenAI's format. Turns that are texts are those of a user and of the model, one
    after the other.

    Args:
        location: Location of the row, for errors.
        conversation: Value of `conversations`, or its JSON.
        unread: Set that receives the names of fields that are not read.

    Raises:
        DataError: A message is invalid, or a field would change the prompt or the loss and is not read.
    """
    is_list = isinstance(conversation, list) and bool(conversation)
    if is_list and all(isinstance(turn, str) and not turn.lstrip().startswith("{") for turn in conversation):
        conversation = [
            {"role": role, "content": text}
            for role, text in zip(cycle(("user", "assistant")), conversation, strict=False)
        ]
    turns = read_objects(location, "conversations", conversation)
    if turns and all(is_missing(turn.get("from")) and "role" in turn for turn in turns):
        return read_messages(location, "conversations", turns, unread)
    messages: list[dict[str, Any]] = []
    for place, turn in enumerate(turns):
        where = f"{location}: conversations[{place}]"
        speaker = turn.get("from")
        if not isinstance(speaker, str) or speaker not in _SPEAKERS:
            raise DataError(f"{where}: 'from' must be one of {', '.join(_SPEAKERS)}, got {speaker!r}")
        if "value" not in turn:
            raise DataError(f"{where}: 'value' is missing{name_columns(turn)}")
        value = turn["value"]
        message = {name: each for name, each in turn.items() if name not in ("from", "value") and not is_missing(each)}
        own: dict[str, Any] = {"role": _SPEAKERS[speaker], "content": value}
        if speaker == "function_call":
            thinking, calls = written_calls(where, value)
            own |= {"content": thinking, "tool_calls": calls}
        if twice := [name for name in own if name in message and message[name] != own[name]]:
            raise DataError(f"{where}: {twice[0]!r} contradicts 'from' and 'value'")
        contents = [own["content"]]
        if own["role"] == "tool" and isinstance(value, str) and _RESULTS.fullmatch(value):  # of parallel calls
            contents = [result.strip() for result in _RESULT.findall(value)]  # the chat template adds the tags
        messages += [{**message, **own, "content": content} for content in contents]
    return read_messages(location, "conversations", messages, unread)


def with_system(location: str, field: str, row: Mapping[str, Any], read: Messages) -> Messages:
    """Put the system message of a row before messages that do not begin with it.

    Args:
        location: Location of the row, for errors.
        field: Field of the messages.
        row: Row, which may have a system message.
        read: The messages and their weights.

    Raises:
        DataError: The system message is not a text, or differs from the first message.
    """
    given = {name: row[name] for name in SYSTEM_FIELDS if has_value(row.get(name))}
    messages, weights = read
    for name, system in given.items():
        if not isinstance(system, str):
            raise DataError(f"{location}: {name!r} must be text, got {describe(system)}")
        if messages and messages[0]["role"] == "system":
            if messages[0]["content"].strip() != system.strip():
                raise DataError(f"{location}: {name!r} and the system message of {field!r} are different")
        else:
            messages, weights = ({"role": "system", "content": system}, *messages), (0.0, *weights)
    return messages, weights


def _calls(where: str, role: str, message: Mapping[str, Any], unread: set[str]) -> list[dict[str, Any]]:
    given = [name for name in _CALLS if name in message and is_given(message, name)]
    if len(given) > 1 or (given and role != "assistant"):
        raise DataError(f"{where}: a message of the role {role!r} cannot have {' and '.join(map(repr, given))}")
    if not given:
        return []
    value = message[given[0]]
    calls = [value] if given[0] == "function_call" else value
    return [read_call(where, call, unread) for call in read_objects(where, given[0], calls)]


def _content(where: str, role: str, message: Mapping[str, Any]) -> str:
    """Return the text of a message. A message of the model or of a tool may lack it."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if is_missing(content) or content == []:
        says_else = any(has_value(message.get(name)) for name in (*_CALLS, *REASONING))
        if role == "tool" or (role == "assistant" and (says_else or "content" in message)):
            return ""
        if "content" not in message:
            raise DataError(f"{where}: 'content' is missing{name_columns(message)}")
        found = "an empty list" if content == [] else "null"
        raise DataError(f"{where}: the 'content' of a message of the role {role!r} must be text, got {found}")
    if role == "tool" and isinstance(content, dict):
        return json.dumps(content, ensure_ascii=False)
    if isinstance(content, list):
        return "".join(_text_of_part(f"{where}: content[{place}]", part) for place, part in enumerate(content))
    raise DataError(f"{where}: 'content' must be text, or a list of parts that are text, got {describe(content)}")


def _text_of_part(where: str, part: Any) -> str:
    if not isinstance(part, dict):
        raise DataError(f"{where}: a part of 'content' must be an object with type and text, got {describe(part)}")
    given = {name: value for name, value in part.items() if not is_missing(value)}
    texts = [name for name in _TEXTS if isinstance(given.get(name), str)]
    others = [name for name, value in given.items() if name not in ("type", *texts) and has_value(value)]
    if given.get("type") != "text" or len(texts) != 1 or others:
        raise DataError(
            f"{where}: a part of 'content' must have the type 'text' and a text, got the type {given.get('type')!r}"
            f"{name_columns(part)}"
        )
    return str(given[texts[0]])


def _weight(where: str, message: Mapping[str, Any], *, is_trained: bool) -> float:
    """Return the weight of a message, whose marks must not ask to train what cannot be trained."""
    if _MARKED.isdisjoint(message):
        return float(is_trained)
    marks = {name: read_mark(where, name, message[name]) for name in _MARKS if name in message}
    weight = message.get("weight")
    if is_missing(weight):
        weight = 1.0
    else:
        if not isinstance(weight, bool | int | float) or not 0 <= weight < float("inf"):
            raise DataError(f"{where}: 'weight' must be a number of at least 0, got {weight!r:.60}")
        marks["weight"] = bool(weight)
    if not is_trained and (asking := [name for name, mark in marks.items() if mark]):
        raise DataError(f"{where}: {asking[0]!r} asks to train a message that is not trained here")
    return 0.0 if not is_trained or False in marks.values() else float(weight)
