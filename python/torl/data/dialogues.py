"""Conversations of examples, in OpenAI's and in ShareGPT's format, as messages for chat templates."""

import json
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

from torl.data.files import describe
from torl.data.values import name_columns
from torl.errors import DataError
from torl.inputs import parse_json
from torl.text.example_encoder import REASONING

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
_EXCLUDING = ("loss", "training", "train")
"""Fields of a message that is not trained if one of them is false: AgentInstruct's, and Axolotl's."""
_CONVERTED = ("weight", *_EXCLUDING, "tool_calls", "function_call")
"""Fields of a message that do not reach the chat template as they are."""
_RESULT = re.compile(r"<tool_response>((?:(?!</?tool_response>).)*)</tool_response>", re.DOTALL)
_RESULTS = re.compile(rf"(?:\s*{_RESULT.pattern})+\s*", re.DOTALL)


def read_messages(location: str, field: str, messages: Any) -> Messages:
    """Read messages in OpenAI's format. Only messages of the model have a weight, 1 unless a message has its own.

    The weight of an empty message is 0: the model would learn to end at once. Arguments of tool calls become objects,
    because chat templates write them as JSON. Fields that are null are dropped, and `function_call`, OpenAI's older
    form, becomes a tool call.

    Args:
        location: Location of the row, for errors.
        field: Field of the messages.
        messages: Value of the field, or its JSON.

    Raises:
        DataError: A message is invalid.
    """
    read, weights = [], []
    for place, message in enumerate(_objects(location, field, messages)):
        where = f"{location}: {field}[{place}]"
        role = _ROLES.get(str(message.get("role")))
        if role is None:
            raise DataError(f"{where}: 'role' must be one of {', '.join(_ROLES)}, got {message.get('role')!r}")
        fields = {name: value for name, value in message.items() if value is not None and name not in _CONVERTED}
        fields |= {"role": role, "content": _content(where, role, message.get("content"))}
        older = message.get("function_call")
        if calls := message.get("tool_calls") or ([] if older is None else [older]):
            fields["tool_calls"] = [_call(where, call) for call in _objects(where, "tool_calls", calls)]
        elif role != "tool" and not any(name in message for name in ("content", *REASONING)):
            raise DataError(f"{where}: 'content' is missing{name_columns(message)}")
        read.append(fields)
        weight = _weight(where, message) if role == "assistant" else 0.0
        is_empty = not (fields["content"].strip() or calls or any(map(fields.get, REASONING)))
        weights.append(0.0 if is_empty else weight)
    return tuple(read), tuple(weights)


def read_conversation(location: str, conversation: Any, system: Any = None) -> Messages:
    """Read a conversation in ShareGPT's format, with LLaMA-Factory's `function_call` and `observation`.

    Turns with `role` are messages in OpenAI's format.

    Args:
        location: Location of the row, for errors.
        conversation: Value of `conversations`, or its JSON.
        system: System message of the row. Optional.

    Raises:
        DataError: A message is invalid.
    """
    turns = _objects(location, "conversations", conversation)
    first = turns[0] if turns else {}
    is_system = _SPEAKERS.get(str(first.get("from", first.get("role")))) == "system"
    repeats_system = is_system and system in (first.get("value"), first.get("content"))
    messages = [{"role": "system", "content": system}] if system and not repeats_system else []
    if turns and all("from" not in turn and "role" in turn for turn in turns):
        return read_messages(location, "conversations", [*messages, *turns])
    for place, turn in enumerate(turns):
        where = f"{location}: conversations[{place}]"
        speaker = str(turn.get("from"))
        if speaker not in _SPEAKERS:
            raise DataError(f"{where}: 'from' must be one of {', '.join(_SPEAKERS)}, got {turn.get('from')!r}")
        if "value" not in turn:
            raise DataError(f"{where}: 'value' is missing{name_columns(turn)}")
        value = turn["value"]
        message: dict[str, Any] = {"role": _SPEAKERS[speaker], "content": value}
        message |= {name: turn[name] for name in ("weight", *_EXCLUDING) if name in turn}
        if speaker == "function_call":
            thinking, calls = _written_calls(where, value)
            message |= {"content": thinking, "tool_calls": calls}
        is_result = message["role"] == "tool"
        messages += [message | {"content": result} for result in _unwrapped(value)] if is_result else [message]
    return read_messages(location, "conversations", messages)


def _unwrapped(results: Any) -> list[Any]:
    """Return the results of parallel calls without the tags around each, which the chat template adds."""
    if not isinstance(results, str) or _RESULTS.fullmatch(results) is None:
        return [results]
    return [result.strip() for result in _RESULT.findall(results)]


def read_tools(
    location: str, row: Mapping[str, Any], messages: Sequence[Mapping[str, Any]] = ()
) -> tuple[Mapping[str, Any], ...]:
    """Read the schemas of a row's tools: a list, or the JSON of one, with or without OpenAI's "function" around each.

    Tools that a system message describes already, as in Hermes' files, are left out: the template would repeat them.

    Raises:
        DataError: The value is not a list of objects with names.
    """
    tools = row.get("tools")
    if tools is None and isinstance(row.get("functions"), list):  # OpenAI's older name
        tools = row["functions"]
    if isinstance(tools, str):
        tools = _parsed(location, "tools", tools) if tools.strip() else None
    schemas = [] if tools is None else _objects(location, "tools", tools)
    wrapped: list[dict[str, Any]] = [
        tool if "function" in tool else {"type": "function", "function": tool} for tool in schemas
    ]
    for schema in wrapped:
        if not isinstance(schema["function"], dict) or not isinstance(schema["function"].get("name"), str):
            raise DataError(f"{location}: 'tools' has a tool without a name")
    system = str(messages[0]["content"]) if messages and messages[0]["role"] == "system" else ""
    described = system.rpartition("<tools>")[2].partition("</tools>")[0] if "</tools>" in system else ""
    if wrapped and all(json.dumps(schema["function"]["name"]) in described for schema in wrapped):
        return ()
    return tuple(wrapped)


def _call(where: str, call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function", call)
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise DataError(f"{where}: a tool call must have a function with a name and arguments")
    arguments = function.get("arguments") or {}
    for _ in range(2):  # some files encode them twice
        if isinstance(arguments, str):
            arguments = _parsed(where, "arguments", arguments) or {}
    if not isinstance(arguments, dict):
        raise DataError(f"{where}: the arguments of {function['name']!r} must be an object, got {describe(arguments)}")
    return {
        **{name: value for name, value in call.items() if name in ("id",) and value is not None},
        "type": "function",
        "function": {"name": function["name"], "arguments": arguments},
    }


def _written_calls(where: str, value: Any) -> tuple[str, list[Any]]:
    """Return the thinking before calls, and the calls."""
    thinking = ""
    if isinstance(value, str):
        is_json = value.lstrip().startswith(("{", "["))
        before, end, written = ("", "", value) if is_json else value.rpartition("</think>")
        thinking, value = before + end, _parsed(where, "value", written)
    return thinking, value if isinstance(value, list) else [value]


def _parsed(where: str, field: str, text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        raise DataError(f"{where}: {field!r} must be JSON: {error}") from error


def _objects(where: str, field: str, value: Any) -> list[dict[str, Any]]:
    if isinstance(value, str):
        value = _parsed(where, field, value)
    if not isinstance(value, list) or not all(isinstance(member, dict) for member in value):
        found = describe(value) if not isinstance(value, list) else "a list with other members"
        raise DataError(f"{where}: {field!r} must be a list of objects, got {found}")
    return value


def _content(where: str, role: str, content: Any) -> str:
    if content is None:
        return ""
    if role == "tool" and isinstance(content, dict):
        return json.dumps(content, ensure_ascii=False)
    if isinstance(content, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in content):
        content = "".join(str(part.get("text", "")) for part in content)
    if not isinstance(content, str):
        raise DataError(f"{where}: 'content' must be text, or a list of parts that are text, got {describe(content)}")
    return content


def _weight(where: str, message: Mapping[str, Any]) -> float:
    if any(message.get(name) is False for name in _EXCLUDING):
        return 0.0
    weight = message.get("weight")
    weight = 1.0 if weight is None else weight
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < float("inf"):
        raise DataError(f"{where}: 'weight' must be a number of at least 0, got {weight!r}")
    return float(weight)
