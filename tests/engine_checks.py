"""Requirements on an engine, on a GPU as on a CPU: bodies of tests that both tiers run."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import pairwise
from typing import Any

from torl._core import StopCondition
from torl.types import SampledTurn, SamplingParameters, TurnRequest
from torl.weights.rendezvous import Rendezvous

END = StopCondition.marker(b"```output")
GREEDY = SamplingParameters(max_tokens=90, temperature=0.0)

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
