"""The fields of a request, and what each of them may say."""

import json
from collections.abc import Mapping
from typing import Any

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
"""Settings of sampling that are the run's, whatever a program says: it learns from what its own policy samples."""
_READ = ("messages", "model", "tools", "stream", "stream_options", "max_tokens", "max_completion_tokens", "stop")
# What no sampled token depends on.
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
# What a request may say besides, only so.
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
    # Beyond OpenAI's interface, of vLLM's server.
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


def unsupported_field(body: Mapping[str, Any]) -> tuple[str, str] | None:
    """The first field of a request that says what cannot be done, and why; a null says nothing."""
    for name, value in body.items():
        if value is None or name in (*_READ, *_UNREAD, *IGNORED):
            continue
        if name not in _ONLY:
            return name, f"{name} is nothing that can be asked for here: leave it out"
        if value not in _ONLY[name]:
            return name, f"{name} can only be {' or '.join(map(json.dumps, _ONLY[name]))} here"
    return None
