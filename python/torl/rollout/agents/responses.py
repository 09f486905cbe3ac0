"""Answers in the shapes of OpenAI's interface: a completion, its chunks, an error."""

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

from torl.rollout.agents.episode import Completion
from torl.rollout.agents.requests import RequestError

MODEL = "policy"
"""What the model is called; requests may call it what they like."""


def completion_body(id: str, completion: Completion) -> dict[str, Any]:
    """The answer to a request without `stream`."""
    choice = {
        "index": 0,
        "message": dict(completion.message),
        "logprobs": None,
        "finish_reason": completion.finish_reason,
    }
    return {**_head(id, "chat.completion"), "choices": [choice], "usage": _usage(completion)}


def chunks(id: str, completion: Completion, *, with_usage: bool) -> Iterator[bytes]:
    """The events of a stream. A turn is whole before it is told of, so they come at once."""
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
    """What clients of OpenAI's read of an error."""
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    return {"error": {"message": str(error), "type": kind, "param": error.param, "code": error.code}}


def models_body() -> dict[str, Any]:
    """The one model there is."""
    return {"object": "list", "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "torl"}]}


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
