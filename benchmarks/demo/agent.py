"""The agent program of `make demo-chat`: twenty lines that know nothing of torl but the sandbox they run code in."""

import json
from functools import cache

from openai import AsyncOpenAI

import torl
from torl_sandbox import SandboxPool

TOOLS = [{"type": "function", "function": {"name": "python", "parameters": {"type": "object", "properties": {}}}}]


@cache
def _pool() -> SandboxPool:
    return SandboxPool(1)


@cache
def _client() -> AsyncOpenAI:
    return AsyncOpenAI(base_url="http://127.0.0.1", api_key="any")  # one for all: making it takes longer than a turn


async def play(problem: torl.Problem, url: str) -> str | None:
    """Ask, run what the model wants to be run, twice at most, and let its last message be the answer."""
    messages = [{"role": "user", "content": problem.question}]
    client = _client().with_options(base_url=url)
    for _ in range(3):
        reply = await client.chat.completions.create(model="policy", messages=messages, tools=TOOLS)
        message = reply.choices[0].message
        if not message.tool_calls:
            break
        messages.append(message.model_dump())
        for call in message.tool_calls:
            run = await _pool().run_async(json.loads(call.function.arguments).get("code", ""))
            rendered = (run.stdout or run.exception_line or "").strip()
            messages.append({"role": "tool", "tool_call_id": call.id, "content": rendered})
    return None
