"""Messages between the model and an agent program.

A message of the model reaches the program as a chat completion. The messages that the program adds become tokens again,
either as the continuation of a sampled message or by the model's chat template.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torl.base.types import Markup, ToolRequest, Turn
from torl.components.formats.chat import ChatFormat
from torl.components.formats.chat.calls import ChatCall
from torl.components.text.prompt_encoder import ControlTokenEscaper, unescape
from torl.components.text.tokenizer import PlainTextEncoder
from torl.rollout.agents.requests import RequestError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

MODEL = "policy"
"""Name of the model. Requests may use any other name."""


@dataclass(frozen=True, slots=True)
class Completion:
    """The reply to a request."""

    message: Mapping[str, Any]
    finish_reason: str
    """OpenAI's finish reason."""
    prompt_tokens: int
    sampled_tokens: int
    cached_tokens: int


# --- from the model to the program --------------------------------------------------------------------------------


def valid_calls(calls: Sequence[ChatCall]) -> list[ChatCall]:
    """The calls with a valid request. A message with an invalid call reaches the program as plain text."""
    return [call for call in calls if not call.is_malformed]


def message_of(
    form: ChatFormat, turn: Turn, calls: Sequence[ChatCall], ids: Sequence[str], stop: Sequence[str]
) -> Mapping[str, Any]:
    """The message of a turn in OpenAI's format, with the thinking as `reasoning_content`.

    Args:
        form: The model's format.
        turn: The sampled turn.
        calls: The valid calls of the turn.
        ids: The ids of these calls.
        stop: Stop sequences that may have ended the turn. They are cut from the content.
    """
    said = form.read_message(turn.text)
    content = said.text(lambda call: call.is_malformed or not calls)
    content = min((content.partition(each)[0] for each in stop), key=len, default=content)
    message: dict[str, Any] = {"role": "assistant", "content": content if content or not calls else None}
    if said.thinking is not None:
        message["reasoning_content"] = said.thinking
    if calls:
        message["tool_calls"] = [_openai_call(call.request, id) for call, id in zip(calls, ids, strict=True)]
    return message


def completion_body(id: str, completion: Completion) -> dict[str, Any]:
    """The body of the response to a request without `stream`."""
    choice = {
        "index": 0,
        "message": dict(completion.message),
        "logprobs": None,
        "finish_reason": completion.finish_reason,
    }
    return {**_head(id, "chat.completion"), "choices": [choice], "usage": _usage(completion)}


def chunks(id: str, completion: Completion, *, with_usage: bool) -> Iterator[bytes]:
    """The events of a stream. A turn is complete before its first event, so all are sent at once."""
    head = _head(id, "chat.completion.chunk")
    message = dict(completion.message)
    calls = message.pop("tool_calls", [])
    deltas: list[dict[str, Any]] = [{"role": message.pop("role"), "content": ""}]
    deltas += [{name: text} for name, text in sorted(message.items(), reverse=True) if text]
    deltas += [{"tool_calls": [{"index": index, **call}]} for index, call in enumerate(calls)]
    usage = {"usage": None} if with_usage else {}
    for delta in deltas:
        yield _event({**head, "choices": [_choice(delta, None)], **usage})
    yield _event({**head, "choices": [_choice({}, completion.finish_reason)], **usage})
    if with_usage:
        yield _event({**head, "choices": [], "usage": _usage(completion)})
    yield b"data: [DONE]\n\n"


def error_body(error: RequestError) -> dict[str, Any]:
    """The body of an error response."""
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    return {"error": {"message": str(error), "type": kind, "param": error.param, "code": error.code}}


def models_body() -> dict[str, Any]:
    """The list of models, which contains one."""
    return {"object": "list", "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "torl"}]}


def _openai_call(request: object, id: str) -> dict[str, Any]:
    assert isinstance(request, ToolRequest)  # of a valid call
    arguments = json.dumps(dict(request.arguments), ensure_ascii=False)
    return {"id": id, "type": "function", "function": {"name": request.tool, "arguments": arguments}}


def _head(id: str, kind: str) -> dict[str, Any]:
    return {"id": id, "object": kind, "created": int(time.time()), "model": MODEL}


def _choice(delta: Mapping[str, Any], finish_reason: str | None) -> dict[str, Any]:
    return {"index": 0, "delta": dict(delta), "logprobs": None, "finish_reason": finish_reason}


def _usage(completion: Completion) -> dict[str, Any]:
    return {
        "prompt_tokens": completion.prompt_tokens,
        "completion_tokens": completion.sampled_tokens,
        "total_tokens": completion.prompt_tokens + completion.sampled_tokens,
        "prompt_tokens_details": {"cached_tokens": completion.cached_tokens},
    }


def _event(body: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(body, ensure_ascii=False).encode() + b"\n\n"


# --- from the program to the model --------------------------------------------------------------------------------


def continuation_parts(
    form: ChatFormat, calls: Sequence[ChatCall], contents: Sequence[str], user_messages: Sequence[str], *, ended: bool
) -> list[str | Markup]:
    """The text between a message of the model and its next one.

    Args:
        form: The model's format.
        calls: The calls of the message that the program has answered.
        contents: Their results.
        user_messages: The messages of the user that follow.
        ended: Whether the model has sampled the end of its message. Otherwise the end is inserted.
    """
    parts = form.continuation(calls, contents, user_messages)
    return parts if ended else [Markup(form.message_end), *parts]


class PromptRenderer:
    """Renders conversations by the model's chat template. Control tokens in a message's text stay text."""

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerFast",
        encoder: PlainTextEncoder,
        variables: Mapping[str, Any] | None = None,
    ) -> None:
        """Take the model's tokenizer and encoder, and variables of its chat template."""
        self._tokenizer, self._encoder, self._variables = tokenizer, encoder, variables or {}
        self._escaper = ControlTokenEscaper(tokenizer)

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any]) -> list[int]:
        """The tokens of a conversation, up to the model's next message.

        Raises:
            RequestError: The template rejects the conversation.
        """
        escaped: list[str] = []
        conversation, schemas = self._escaper.escape(messages, escaped), self._escaper.escape(tools, escaped)
        options: dict[str, Any] = {"tools": schemas or None, "add_generation_prompt": True, "tokenize": False}
        try:
            text: Any = self._tokenizer.apply_chat_template(conversation, **options, **self._variables)
        except Exception as error:  # a template may fail in any way on a program's messages
            raise RequestError(f"the model's chat template refuses the messages: {error}", "messages") from error
        return self._encoder.encode_observation(unescape(text, escaped))[0]
