"""What a program asks of the chat completions interface, as far as a sampled token can depend on it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torl.rollout.agents.fields import IGNORED, unsupported_field

_DEEPEST = 64  # arrays and objects within each other
_TEXTS = ("text", "refusal")  # parts of a content
_ROLES = ("system", "developer", "user", "assistant", "tool")


class RequestError(Exception):
    """A request that is answered with an error, in the words of OpenAI's interface."""

    def __init__(self, message: str, param: str | None = None, *, code: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.param, self.code, self.status = param, code, status


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One request for a message of the model."""

    messages: tuple[dict[str, Any], ...]  # as chat templates read them: texts, and arguments as objects
    tools: tuple[Any, ...]  # their schemas
    max_tokens: int | None
    stop: tuple[str, ...]
    may_call: bool
    stream: bool
    with_usage: bool  # at the end of a stream
    ignored: tuple[str, ...]  # what it said about sampling, in vain

    @classmethod
    def read(cls, body: Any) -> "ChatRequest":
        """Check a request.

        Raises:
            RequestError: it is none, or asks for what a model that is being trained cannot be asked.
        """
        if not isinstance(body, dict):
            raise RequestError("the body of a request is a JSON object")
        if (found := unsupported_field(body)) is not None:
            name, why = found
            raise RequestError(why, name)
        tools = body.get("tools") or []
        if not isinstance(tools, list) or not all(map(_is_function, tools)):
            raise RequestError('tools is a list of {"type": "function", "function": {"name": ...}}', "tools")
        stop = body.get("stop") or []
        stop = [stop] if isinstance(stop, str) else stop
        if not isinstance(stop, list) or not all(isinstance(each, str) and each for each in stop):
            raise RequestError("stop is a text, or a list of them, none empty", "stop")
        options = body.get("stream_options") or {}
        messages = _messages(body.get("messages"))
        for name, value in (("messages", messages), ("tools", tools), ("stop", stop)):
            _require_text(name, value)
        return cls(
            messages=messages,
            tools=tuple(tools),
            max_tokens=_most(body),
            stop=tuple(stop),
            may_call=body.get("tool_choice") != "none",
            stream=body.get("stream") is True,
            with_usage=isinstance(options, dict) and options.get("include_usage") is True,
            ignored=tuple(name for name in IGNORED if body.get(name) is not None),
        )


def _is_function(tool: Any) -> bool:
    if not isinstance(tool, dict) or tool.get("type") != "function":
        return False
    function = tool.get("function")
    return isinstance(function, dict) and isinstance(function.get("name"), str)


def _require_text(name: str, value: Any, depth: int = 0) -> None:
    """Refuse what a template or a tokenizer would fail on, which is no failure of the host.

    Arguments of calls are looked into as they were read: JSON may hide half of a surrogate pair in them.
    """
    if depth > _DEEPEST:
        raise RequestError(f"{name} is nested more than {_DEEPEST} deep", name)
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise RequestError(f"{name} holds half of a surrogate pair", name) from None
    elif isinstance(value, Mapping):
        for key, member in value.items():
            _require_text(name, key, depth + 1)
            _require_text(name, member, depth + 1)
    elif isinstance(value, list | tuple):
        for member in value:
            _require_text(name, member, depth + 1)


def _most(body: Mapping[str, Any]) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        most = body.get(name)
        if most is not None:
            if not isinstance(most, int) or isinstance(most, bool) or most < 1:
                raise RequestError(f"{name} is a number of tokens, at least 1", name)
            return most
    return None


def _messages(messages: Any) -> tuple[dict[str, Any], ...]:
    if not isinstance(messages, list) or not messages:
        raise RequestError("messages is a list with at least one message", "messages")
    return tuple(read_message(message, f"messages[{place}]") for place, message in enumerate(messages))


def read_message(message: Any, place: str) -> dict[str, Any]:
    """A message with what templates read of it; what else programs keep in one is left out.

    Raises:
        RequestError: it is none, or is no text.
    """
    if not isinstance(message, dict) or message.get("role") not in _ROLES:
        raise RequestError(f"a message is an object whose role is one of {', '.join(_ROLES)}", f"{place}.role")
    role = "system" if message["role"] == "developer" else message["role"]
    read: dict[str, Any] = {"role": role, "content": _text(message.get("content"), place)}
    if role == "assistant" and message.get("tool_calls"):
        read["tool_calls"] = _calls(message["tool_calls"], f"{place}.tool_calls")
    if message.get("function_call") is not None:
        raise RequestError("function_call is of an older interface: say it by tool_calls", f"{place}.function_call")
    if role == "tool":
        if not isinstance(message.get("tool_call_id"), str):
            raise RequestError("a message of a tool says whose result it is", f"{place}.tool_call_id")
        read["tool_call_id"] = message["tool_call_id"]
        if isinstance(message.get("name"), str):
            read["name"] = message["name"]
    return read


def _text(content: Any, place: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        texts = [part.get(part["type"]) if part.get("type") in _TEXTS else None for part in content]
        if all(isinstance(text, str) for text in texts):
            return "".join(map(str, texts))
    raise RequestError("the content of a message is text, or a list of parts that are text", f"{place}.content")


def _calls(calls: Any, place: str) -> list[dict[str, Any]]:
    read = []
    listed: list[Any] = calls if isinstance(calls, list) else [None]
    for call in listed:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise RequestError("a tool call has a function with a name and arguments", place)
        arguments = arguments_of(function.get("arguments"))
        function = {"name": function["name"], "arguments": arguments}
        read.append({"id": str(call.get("id") or ""), "type": "function", "function": function})
    return read


def arguments_of(arguments: Any) -> Any:
    """The arguments of a call by their meaning: JSON is read, and what is none stays text."""
    if arguments is None:
        return {}
    if isinstance(arguments, str):
        try:
            return json.loads(arguments) if arguments.strip() else {}
        except (ValueError, RecursionError):
            return arguments
    return arguments
