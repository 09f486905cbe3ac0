"""Tokens that a turn computes after another one: the observation, and the one token that was sampled but not read."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen2ForCausalLM

from engine_checks import assert_what_is_held_changes_no_token
from engines import make_engine
from torl._core import StopCondition
from torl.base.types import Prompt, SampledTurn, SamplingParameters, TurnRequest

END = StopCondition.marker(b"```output")
Turns = list[tuple[list[int], SampledTurn]]  # the context of each, and the sampled turn


async def converse(engine: Any, prompt: Sequence[int], observation: list[int], name: str, seed: int) -> Turns:
    """Turns until one ends otherwise than with the marker, five at most."""
    context, turns = [*prompt], []
    for turn in range(5):
        sampling = SamplingParameters(max_tokens=90, seed=100 * seed + turn)
        sampled = await engine.sample(TurnRequest(f"{name}/{turn}", context, sampling, END))
        turns.append(([*context], sampled))
        if sampled.finish_reason != "end":
            break
        context += [*sampled.token_ids, *observation]
    return turns


async def converse_all(engine: Any, prompts: Sequence[Prompt], observation: list[int], samples: int) -> list[Turns]:
    return await asyncio.gather(
        *(
            converse(engine, prompt.token_ids, observation, f"{number}-{sample}", seed=sample)
            for number, prompt in enumerate(prompts)
            for sample in range(samples)
        )
    )


def largest_gap(model: Any, turns: Turns) -> float:
    """The gap between the engine's logprobs and transformers' in double precision, from one forward over all turns."""
    context, last = turns[-1]
    ids = torch.tensor([[*context, *last.token_ids]])
    with torch.no_grad():
        logprobs = model(ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
    gaps = []
    for before, sampled in turns:
        start = len(before) - 1
        expected = logprobs[start : start + len(sampled.token_ids)]
        gaps.append(float((expected - torch.tensor(sampled.logprobs, dtype=torch.float64)).abs().max()))
    return max(gaps)


@pytest.fixture(scope="module")
def reference(tiny_model_directory: Path) -> Any:
    """The model in double precision, so that the rounding that is left is the engine's own."""
    return Qwen2ForCausalLM.from_pretrained(tiny_model_directory, dtype=torch.float64)


@pytest.fixture(scope="module")
def observation(tokenizer: Any) -> list[int]:
    return list(tokenizer.encode("\n12\n```\n", add_special_tokens=False))


async def test_only_new_tokens_are_computed(engine, prompts, observation, reference) -> None:
    """Also where samples of one problem share all their full blocks, and where two turns are equal."""
    later = 0
    for turns in await converse_all(engine, [*prompts[:4], prompts[0]], observation, samples=12):
        for (before, sampled), (_, following) in pairwise(turns):
            # More where an equal turn, after it an equal observation, has come before.
            assert following.cached_tokens >= len(before) + len(sampled.token_ids) - 1
            later += 1
        assert largest_gap(reference, turns) < 1e-5
    assert later > 30


async def test_retained_blocks_change_no_token(engine, prompts, observation) -> None:
    await assert_what_is_held_changes_no_token(engine, [prompt.token_ids for prompt in prompts], observation)


async def test_no_block_is_retained_for_turns_that_are_not_continued(engine, prompts, observation) -> None:
    await asyncio.gather(
        *(
            engine.sample(TurnRequest(f"left-{n}", prompt.token_ids, SamplingParameters(max_tokens=90, seed=n), END))
            for n, prompt in enumerate(prompts)
        )
    )
    assert await engine._llm.reset_prefix_cache()  # vLLM refuses as long as a block is in use


@pytest.mark.slow
@pytest.mark.usefixtures("temporary_directory")
async def test_a_cache_that_is_much_too_small(tiny_model_directory, prompts, observation, reference, tmp_path) -> None:
    """Partial blocks make room for requests; requests lose their blocks and compute them again."""
    engine = make_engine(tiny_model_directory, tmp_path / "engine.log", arguments={"num_gpu_blocks_override": 64})
    await engine.start()
    try:
        found = await converse_all(engine, prompts, observation, samples=2)
        later = [following for turns in found for _, following in turns[1:]]
        assert any(turn.cached_tokens < 32 for turn in later)  # lost
        assert any(turn.cached_tokens % 32 for turn in later)  # held
        assert max(largest_gap(reference, turns) for turns in found) < 1e-5
        assert await engine._llm.reset_prefix_cache()
    finally:
        await engine.close()
