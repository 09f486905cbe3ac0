"""Requirements on an engine, on a GPU as on a CPU: bodies of tests that both tiers run."""

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from torl._core import StopCondition
from torl.base.errors import EngineError
from torl.base.types import SampledTurn, SamplingParameters, TurnRequest
from torl.components.weights.rendezvous import Rendezvous

END = StopCondition.marker(b"```output")
GREEDY = SamplingParameters(max_tokens=90, temperature=0.0)
LONG = SamplingParameters(max_tokens=500, seed=11)

Conversation = list[tuple[list[int], SampledTurn]]
"""The context of each turn, and the sampled turn."""


async def converse(
    engine: Any, prompts: Sequence[Sequence[int]], observation: Sequence[int], name: str, *, forget: bool
) -> list[Conversation]:
    """A greedy conversation for each prompt, all at once: turns until one ends otherwise than with the marker.

    With `forget` nothing that was computed is left for the next turns.
    """
    talks: list[Conversation] = [[] for _ in prompts]
    open_talks = {number: list(prompt) for number, prompt in enumerate(prompts)}
    for turn in range(5):
        if forget:
            assert await engine._llm.reset_prefix_cache()
        sampled = await asyncio.gather(
            *(
                engine.sample(TurnRequest(f"{name}/{number}/{turn}", context, GREEDY, END))
                for number, context in open_talks.items()
            )
        )
        for number, sample in zip(list(open_talks), sampled, strict=True):
            talks[number].append((open_talks[number], sample))
            if sample.finish_reason != "end":
                del open_talks[number]
            else:
                open_talks[number] = [*open_talks[number], *sample.token_ids, *observation]
    return talks


async def assert_what_is_held_changes_no_token(
    engine: Any, prompts: Sequence[Sequence[int]], observation: Sequence[int]
) -> None:
    """Greedy turns that continue from blocks that are partly filled, and the same turns with everything recomputed."""
    held = await converse(engine, prompts, observation, "held", forget=False)
    anew = await converse(engine, prompts, observation, "anew", forget=True)
    later = [following for talk in held for _, (_, following) in pairwise(talk)]
    assert len(later) >= len(prompts) // 2
    for talk in held:
        for (before, sample), (_, following) in pairwise(talk):
            assert following.cached_tokens >= len(before) + len(sample.token_ids) - 1
    assert not any(following.cached_tokens for talk in anew for _, following in talk[1:])
    assert [[one.token_ids for _, one in talk] for talk in held] == [[one.token_ids for _, one in t] for t in anew]


async def moved_through_its_states(
    engine: Any,
    prompt: Sequence[int],
    measure: Callable[[], int],
    sending: Callable[[], AbstractAsyncContextManager[tuple[Rendezvous, Any]]],
) -> dict[str, int]:
    """Results of `measure` while a running engine is awake, asleep, has its weights back, and samples again.

    `sending` offers the weights that the engine began with: afterwards it holds and samples the same as before.
    """

    async def say() -> tuple[int, ...]:
        sample = await engine.sample(TurnRequest("say", prompt, GREEDY))
        return tuple(sample.token_ids)

    before, held = await say(), await engine.weight_checksums()
    measured = {"awake": measure()}
    await engine.sleep()
    measured["asleep"] = measure()
    await engine.wake("weights")
    measured["weights"] = measure()
    async with sending() as (rendezvous, process):
        await engine.receive_weights(rendezvous, engine.policy_version + 1)
        assert await process.wait() == 0
    await engine.wake("cache")
    measured["awake again"] = measure()
    assert await engine.weight_checksums() == held
    assert await say() == before
    return measured


def has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


async def turn(engine: Any, prompt: tuple[int, ...], sampling: SamplingParameters, name: str = "turn") -> SampledTurn:
    return await engine.sample(TurnRequest(name, prompt, sampling))


async def greedy_turn(engine: Any, token_ids: tuple[int, ...]) -> tuple[list[int], list[float], int]:
    sampled = await engine.sample(TurnRequest("greedy", token_ids, replace(GREEDY, max_tokens=48)))
    ((version, _),) = sampled.policy_versions
    return list(sampled.token_ids), list(sampled.logprobs), version


def transformers_logprobs(model: Path, prompt: tuple[int, ...], ids: list[int]) -> np.ndarray:
    from transformers import Qwen2ForCausalLM

    with torch.no_grad():
        # In double precision, so that the rounding that is left is the engine's own.
        logits = Qwen2ForCausalLM.from_pretrained(model, dtype=torch.float64)(torch.tensor([[*prompt, *ids]])).logits
    chosen = torch.tensor(ids)[:, None]
    return logits[0, len(prompt) - 1 : -1].log_softmax(-1).gather(1, chosen)[:, 0].numpy()


async def check_that_a_kill_ends_every_request(engine: Any, victim: int, prompts: list[Any]) -> None:
    """Kill the process; every request, call and watch, and every later one, raises, and nothing is left."""
    try:
        processes = engine.processes
        await turn(engine, prompts[0].token_ids, SamplingParameters(max_tokens=1, seed=0))
        turns = [asyncio.ensure_future(turn(engine, p.token_ids, LONG, p.problem.id)) for p in prompts]
        watch = asyncio.ensure_future(engine.watch())
        while not engine.live_requests:
            await asyncio.sleep(0.01)
        assert not any(task.done() for task in [watch, *turns])
        os.kill(processes[victim].pid, signal.SIGSTOP)  # so that it dies with a call that it has not answered
        call = asyncio.ensure_future(engine.describe_workers())
        await asyncio.sleep(0.1)
        assert not call.done()
        os.kill(processes[victim].pid, signal.SIGKILL)
        async with asyncio.timeout(120):  # a death that is not noticed would leave them waiting indefinitely
            results = await asyncio.gather(*turns, call, watch, return_exceptions=True)
        # A turn that the core had sampled to its end may still arrive.
        failed = [result for result in results if not isinstance(result, SampledTurn)]
        assert [result for result in failed if not isinstance(result, EngineError)] == []
        assert len(failed) > 2  # the call, the watch, and turns
        assert "engine.log" in str(failed[0])
        if victim == 0:
            assert "the engine was ended by SIGKILL" in str(failed[-1])
        with pytest.raises(EngineError, match=r"the engine (died|was ended|exited)"):
            await turn(engine, prompts[0].token_ids, LONG)
    finally:
        await engine.close()
    assert all(has_ended(process.pid) for process in processes)
