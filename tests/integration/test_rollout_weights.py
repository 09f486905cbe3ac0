"""New weights in a live engine, sent by another process."""

import asyncio
import json
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import make_engine

from torl.errors import EngineError
from torl.types import SamplingParameters
from torl.weight_transfer import Rendezvous

SENDER = Path(__file__).parent / "weight_sender.py"
GREEDY = SamplingParameters(max_tokens=48, temperature=0.0)


@asynccontextmanager
async def sending(model: Path, directory: Path, *options: str) -> AsyncIterator[tuple[Rendezvous, Any]]:
    where = directory / f"rendezvous-{uuid.uuid4().hex}"
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(SENDER), str(model), "--rendezvous", str(where), *options
    )
    try:
        while not where.exists():
            assert process.returncode is None
            await asyncio.sleep(0.05)
        yield Rendezvous(*json.loads(where.read_text())), process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def perturbed(model: Path, directory: Path) -> Path:
    """The same model with every weight moved a little; returns its directory."""
    import torch
    from transformers import Qwen2ForCausalLM

    changed = Qwen2ForCausalLM.from_pretrained(model, dtype=torch.float32)
    torch.manual_seed(5)
    with torch.no_grad():
        for parameter in changed.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    changed.save_pretrained(directory)
    return directory


async def greedy_turn(engine: Any, token_ids: tuple[int, ...]) -> tuple[list[int], list[float], int]:
    ids: list[int] = []
    logprobs: list[float] = []
    async for piece in engine.generate(token_ids, GREEDY, "greedy"):
        ids += piece.token_ids
        logprobs += piece.logprobs
        version = piece.policy_version
    return ids, logprobs, version


def transformers_logprobs(model: Path, prompt: tuple[int, ...], ids: list[int]) -> np.ndarray:
    import torch
    from transformers import Qwen2ForCausalLM

    with torch.no_grad():
        # In double precision, so that the rounding that is left is the engine's own.
        logits = Qwen2ForCausalLM.from_pretrained(model, dtype=torch.float64)(torch.tensor([[*prompt, *ids]])).logits
    chosen = torch.tensor(ids)[:, None]
    return logits[0, len(prompt) - 1 : -1].log_softmax(-1).gather(1, chosen)[:, 0].numpy()


async def test_new_weights_are_those_that_were_sent(engine, prompts, tiny_model_directory, tmp_path) -> None:
    prompt = prompts[0].token_ids * 4  # long enough to be cached: a stale prefix would show
    changed = perturbed(tiny_model_directory, tmp_path / "changed")
    version = engine.policy_version
    before = await greedy_turn(engine, prompt)
    assert before[2] == version
    try:
        async with sending(changed, tmp_path) as (rendezvous, process):
            await engine.receive_weights(rendezvous, version + 1)
            assert await process.wait() == 0
        ids, logprobs, new_version = await greedy_turn(engine, prompt)
        assert new_version == version + 1
        assert np.abs(transformers_logprobs(changed, prompt, ids) - logprobs).max() < 1e-5
        assert np.abs(transformers_logprobs(tiny_model_directory, prompt, ids) - logprobs).max() > 1e-2
    finally:
        async with sending(tiny_model_directory, tmp_path) as (rendezvous, _):
            await engine.receive_weights(rendezvous, version + 2)
    assert (await greedy_turn(engine, prompt))[:2] == before[:2]


async def test_live_requests_and_new_weights_exclude_each_other(engine, prompts, tmp_path) -> None:
    stream = engine.generate(prompts[0].token_ids, SamplingParameters(max_tokens=400, seed=1), "live")
    await anext(stream)
    with pytest.raises(EngineError, match="1 requests are live"):
        await engine.receive_weights(Rendezvous("127.0.0.1", 9, 2), engine.policy_version + 1)
    await stream.aclose()
    assert engine.live_requests == 0


async def test_a_broken_transfer_stops_the_engine(tiny_model_directory, prompts, tmp_path) -> None:
    """Half of the weights may be new: the engine must not sample another token."""
    engine = make_engine(tiny_model_directory, tmp_path / "engine.log")
    await engine.start()
    try:
        async with sending(tiny_model_directory, tmp_path, "--stop-after", "8") as (rendezvous, _):
            with pytest.raises(EngineError, match="did not take the weights of version 1"):
                await engine.receive_weights(rendezvous, 1)
        assert engine.policy_version == 0
        with pytest.raises(EngineError, match="weights"):
            await greedy_turn(engine, prompts[0].token_ids)
    finally:
        await engine.close()
