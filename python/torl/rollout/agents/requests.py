"""Requests of agent programs to the chat completions API."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torl.base.inputs import parse_json

_MAX_DEPTH = 64  # of nested arrays and objects
_TEXTS = ("text", "refusal")  # types of content parts
_ROLES = ("system", "developer", "user", "assistant", "tool")

IGNORED = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "parallel_tool_calls",
    "reasoning_effort",
    "verbosity",
)
"""Sampling settings that a program cannot change: the run defines them."""
_READ = ("messages", "model", "tools", "stream", "stream_options", "max_tokens", "max_completion_tokens", "stop")
# Fields without effect on sampled tokens.
_UNREAD = (
    "metadata",
    "prediction",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "user",
)
# Other fields, with their supported values.
_ONLY: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "tool_choice": ("auto", "none"),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "functions": ([],),
    "function_call": ("auto", "none"),
    # vLLM's extensions of OpenAI's API.
    "add_generation_prompt": (True,),
    "chat_template_kwargs": ({},),
    "continue_final_message": (False,),
    "echo": (False,),
    "ignore_eos": (False,),
    "min_tokens": (0,),
    "repetition_penalty": (1,),
    "skip_special_tokens": (True,),
    "stop_token_ids": ([],),
    "structured_outputs": ({},),
}


class RequestError(Exception):
    """An error response of OpenAI's API."""

    def __init__(self, message: str, param: str | None = None, *, code: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.param, self.code, self.status = param, code, status


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One request for a message of the model."""

    messages: tuple[dict[str, Any], ...]
    """The messages as chat templates read them, with arguments as objects."""
    tools: tuple[Any, ...]
    """Schemas of the tools."""
    max_tokens: int | None
    stop: tuple[str, ...]
    may_call: bool
    stream: bool
    with_usage: bool
    """Whether a stream ends with the token counts."""
    ignored: tuple[str, ...]
    """Names of its sampling settings, which are ignored."""

    @classmethod
    def read(cls, body: Any) -> "ChatRequest":
        """Parse and check the body of a request.

        Raises:
            RequestError: The body is invalid, or uses an unsupported feature.
        """
        if not isinstance(body, dict):
            raise RequestError("the body of a request is a JSON object")
        if (found := unsupported_field(body)) is not None:
            name, reason = found
            raise RequestError(reason, name)
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
            max_tokens=_max_tokens(body),
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
    """Reject values on which a template or a tokenizer would fail.

    Arguments of calls are checked after parsing: their JSON may contain lone surrogates as escapes.
    """
    if depth > _MAX_DEPTH:
        raise RequestError(f"{name} is nested more than {_MAX_DEPTH} deep", name)
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


def _max_tokens(body: Mapping[str, Any]) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        limit = body.get(name)
        if limit is not None:
            if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
                raise RequestError(f"{name} is a number of tokens, at least 1", name)
            return limit
    return None


def _messages(messages: Any) -> tuple[dict[str, Any], ...]:
    if not isinstance(messages, list) or not messages:
        raise RequestError("messages is a list with at least one message", "messages")
    return tuple(read_message(message, f"messages[{place}]") for place, message in enumerate(messages))


def read_message(message: Any, place: str) -> dict[str, Any]:
    """Parse a message, and drop fields that chat templates do not read.

    Raises:
        RequestError: The message is invalid, or its content is not text.
    """
    if not isinstance(message, dict) or message.get("role") not in _ROLES:
        raise RequestError(f"a message is an object whose role is one of {', '.join(_ROLES)}", f"{place}.role")
    role = "system" if message["role"] == "developer" else message["role"]
    read: dict[str, Any] = {"role": role, "content": _text(message.get("content"), place)}
    if role == "assistant" and message.get("tool_calls"):
        read["tool_calls"] = _calls(message["tool_calls"], f"{place}.tool_calls")
    if message.get("function_call") is not None:
        raise RequestError("function_call belongs to an older API: use tool_calls", f"{place}.function_call")
    if role == "tool":
        if not isinstance(message.get("tool_call_id"), str):
            raise RequestError("a message of a tool must name its call", f"{place}.tool_call_id")
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
    """Parse the JSON arguments of a call. Invalid JSON stays text."""
    if arguments is None:
        return {}
    if isinstance(arguments, str):
        try:
            return parse_json(arguments) if arguments.strip() else {}
        except ValueError:
            return arguments
    return arguments


def unsupported_field(body: Mapping[str, Any]) -> tuple[str, str] | None:
    """The first unsupported field of a request, with the reason. A null value is supported in any field."""
    for name, value in body.items():
        if value is None or name in (*_READ, *_UNREAD, *IGNORED):
            continue
        if name not in _ONLY:
            return name, f"{name} is not supported: leave it out"
        if value not in _ONLY[name]:
            return name, f"{name} can only be {' or '.join(map(json.dumps, _ONLY[name]))} here"
    return None
