"""When two conversations are the same one, though a program has written them down in another way."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any


def conversation_key(messages: Sequence[Mapping[str, Any]], tools: Sequence[Any]) -> str:
    """Equal for conversations that mean the same, however they are written.

    Ids of calls and thoughts do not count, neither does the order of a turn's results, nor white space around what the
    model said and inside of the arguments of its calls.
    """
    parts: list[Any] = [list(tools)]
    results: list[tuple[int, str]] = []
    ids: list[str] = []
    for message in messages:
        role, content = message["role"], message["content"]
        if role == "tool":
            results.append((result_number(message, ids, len(results)), content))
            continue
        if results:
            parts.append(["tool", sorted(results)])
            results = []
        if role == "assistant":
            calls = message.get("tool_calls", [])
            ids = [call["id"] for call in calls]
            parts.append([role, content.strip(), [call["function"] for call in calls]])
        else:
            parts.append([role, content])
    text = json.dumps([*parts, ["tool", sorted(results)]], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def result_number(message: Mapping[str, Any], ids: Sequence[str], place: int) -> int:
    """Of which call of its turn a message holds the result: by its id; by its place where the id is none of them."""
    return ids.index(message["tool_call_id"]) if message["tool_call_id"] in ids else place
