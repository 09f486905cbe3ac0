"""Telling those who wait for an engine that has died, where vLLM forgets them."""

import asyncio
from typing import Any

from torl.engine.protocol import WATCH_SECONDS


async def fail_calls_on_engine_death(llm: Any) -> None:
    """Wait until the AsyncLLM has lost an engine, then fail every call of a method that has no answer yet.

    vLLM fails the requests whose tokens it awaits. It leaves the callers of `collective_rpc`, `pause_generation` and
    the like waiting for ever, and with them each request that is sent before its first one has been answered what the
    model can do (`get_supported_tasks`).
    """
    from vllm.v1.engine.exceptions import EngineDeadError

    while True:
        await asyncio.sleep(WATCH_SECONDS)
        if llm.errored:
            break
    for answer in list(llm.engine_core.utility_results.values()):
        if not answer.done():
            answer.set_exception(EngineDeadError())
