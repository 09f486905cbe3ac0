"""A float32 head on both sides: the engine and the learner agree more closely than where both round their logits."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from engines import make_engine
from torl.base.types import SampledTurn, SamplingParameters, TurnRequest
from torl.components.engine.vllm.engine import VllmEngine
from torl.learner.deepspeed_engine import make_policy
from torl.learner.rows import RowPieces
from torl.run.config import LearnerConfig, ModelConfig


async def sample(engine: VllmEngine, prompts: list[Any]) -> list[SampledTurn]:
    await engine.start()
    try:
        return await asyncio.gather(
            *(
                engine.sample(
                    TurnRequest(str(number), prompt.token_ids, SamplingParameters(max_tokens=60, seed=number))
                )
                for number, prompt in enumerate(prompts)
            )
        )
    finally:
        await engine.close()


def gap(model: ModelConfig, prompts: list[Any], turns: list[SampledTurn]) -> float:
    """The mean difference of the tokens' logprobs: the learner's policy minus the engine."""
    causal_lm = AutoModelForCausalLM.from_pretrained(model.path, dtype=torch.bfloat16, attn_implementation="sdpa")
    policy = make_policy(causal_lm, model, LearnerConfig(), None)
    gaps = []
    for prompt, turn in zip(prompts, turns, strict=True):
        ids = torch.tensor([*prompt.token_ids, *turn.token_ids])
        first, places = len(prompt.token_ids), torch.arange(len(ids))
        with torch.no_grad():
            found, _ = policy(ids, places, places[first - 1 : -1], ids[first:], 1.0, RowPieces((len(ids),), (None,)))
        gaps += (found - torch.tensor(turn.logprobs)).abs().tolist()
    return sum(gaps) / len(gaps)


@pytest.mark.slow
async def test_engine_and_learner_agree_more_closely_with_a_float32_head(
    tiny_model_directory: Path, prompts: list[Any], tmp_path: Path
) -> None:
    found = {}
    for dtype in (None, "float32"):
        model = ModelConfig.model_validate({"path": str(tiny_model_directory), "head_dtype": dtype})
        engine = make_engine(tiny_model_directory, tmp_path / "engine.log", head_dtype=dtype, dtype="bfloat16")
        found[dtype] = gap(model, prompts, await sample(engine, prompts))
    assert found["float32"] < found[None]
    assert found["float32"] < 0.01
