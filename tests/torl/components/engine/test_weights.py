"""New weights in a live engine, sent by another process."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import pytest_asyncio
import torch

from engine_checks import greedy_turn, transformers_logprobs
from engines import make_engine
from torl.base.errors import EngineUnusableError, WeightTransferError
from torl.base.types import SamplingParameters, TurnRequest
from weight_sending import assert_weights_arrive, perturbed, sending

if TYPE_CHECKING:
    from torl.components.engine import VllmEngine

GREEDY = SamplingParameters(max_tokens=48, temperature=0.0)


@pytest_asyncio.fixture
async def assigned_engine(
    tiny_model_directory: Path, tmp_path: Path
) -> AsyncIterator[Callable[[str], Awaitable["VllmEngine"]]]:
    """Makes engines with the given treatment of live turns."""
    engines = []

    async def start(on_weight_update: str) -> "VllmEngine":
        engines.append(make_engine(tiny_model_directory, tmp_path / "engine.log", on_weight_update=on_weight_update))
        await engines[-1].start()
        return engines[-1]

    yield start
    for engine in engines:
        await engine.close()


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


@pytest.mark.parametrize(
    "on_weight_update",
    [pytest.param("recompute", marks=pytest.mark.slow), "keep", pytest.param("drain", marks=pytest.mark.slow)],
)
async def test_weights_in_flight(assigned_engine, prompts, tiny_model_directory, tmp_path, on_weight_update) -> None:
    """Turns that are being sampled continue, and each token is what the version that it names would have sampled."""
    engine = await assigned_engine(on_weight_update)
    changed = perturbed(tiny_model_directory, tmp_path / "changed")
    sampling = SamplingParameters(max_tokens=400, seed=1)
    repeated = prompts[0].token_ids * 4  # long enough to be cached
    await greedy_turn(engine, repeated)
    prompts = [prompt for prompt in prompts for _ in range(4)]
    async with sending(changed, tmp_path) as (rendezvous, process):
        turns = [
            asyncio.ensure_future(
                engine.sample(TurnRequest(f"live-{index}", prompt.token_ids, replace(sampling, seed=index)))
            )
            for index, prompt in enumerate(prompts)
        ]
        await asyncio.wait(turns, return_when=asyncio.FIRST_COMPLETED)  # so all others are in the middle
        assert engine.live_requests > 16
        await engine.receive_weights(rendezvous, 1)
        assert await process.wait() == 0
    ids, logprobs, version = await greedy_turn(engine, repeated)
    assert version == 1
    # An episode that starts now reads nothing that the old weights have computed for the same prompt.
    assert np.abs(transformers_logprobs(changed, repeated, ids) - logprobs).max() < 1e-5
    spanning = 0
    gaps = []
    for prompt, sampled in zip(prompts, await asyncio.gather(*turns), strict=True):
        assert len(sampled.token_ids) == len(sampled.logprobs)
        versions = [version for version, _ in sampled.policy_versions]
        assert versions in ([0], [0, 1])
        spanning += versions == [0, 1]
        ids = list(sampled.token_ids)
        boundary = sampled.policy_versions[1][1] if versions == [0, 1] else len(ids)
        old = transformers_logprobs(tiny_model_directory, prompt.token_ids, ids)[:boundary]
        new = transformers_logprobs(changed, prompt.token_ids, ids)[boundary:]
        assert np.abs(old - sampled.logprobs[:boundary]).max() < 1e-5
        gaps += np.abs(new - sampled.logprobs[boundary:]).tolist()
    if on_weight_update == "drain":
        assert spanning == 0
        return
    assert spanning > 3
    if on_weight_update == "recompute":
        assert max(gaps) < 1e-5
    else:  # what the old policy's keys and values are worth
        assert np.mean(gaps) > 1e-4


async def test_a_broken_transfer_stops_the_engine(tiny_model_directory, prompts, tmp_path) -> None:
    """Half of the weights may be new: the engine must not sample another token."""
    engine = make_engine(tiny_model_directory, tmp_path / "engine.log")
    await engine.start()
    try:
        async with sending(tiny_model_directory, tmp_path, "--stop-after", "8") as (rendezvous, _):
            with pytest.raises(EngineUnusableError, match="did not take the weights of version 1") as raised:
                await engine.receive_weights(rendezvous, 1)
        assert isinstance(raised.value, WeightTransferError)  # after which a run on a cluster continues
        assert engine.policy_version == 0
        with pytest.raises(EngineUnusableError, match="weights"):
            await greedy_turn(engine, prompts[0].token_ids)
    finally:
        await engine.close()


@pytest.mark.slow
async def test_quantized_engine_takes_all_weights_of_a_checkpoint(tiny_model_directory, tmp_path) -> None:
    """It quantizes them again. The scales that it adds are not missing; a tensor of the checkpoint is."""
    arguments = {"quantization": "fp8_per_channel"}
    engine = make_engine(tiny_model_directory, tmp_path / "engine.log", dtype="bfloat16", arguments=arguments)
    await engine.start()
    try:
        loaded = await engine.weight_checksums()
        assert any(name.endswith("weight_scale") for name in loaded[0])
        received = []
        for version, model in enumerate([perturbed(tiny_model_directory, tmp_path / "changed"), tiny_model_directory]):
            async with sending(model, tmp_path) as (rendezvous, _):
                await engine.receive_weights(rendezvous, version + 1)
            received.append(await engine.weight_checksums())
        changed, restored = received
        assert all(changed[0][name] != checksum for name, checksum in loaded[0].items())
        assert restored == loaded
        left_out = "model.layers.1.mlp.down_proj.weight"
        async with sending(tiny_model_directory, tmp_path, "--leave-out", left_out) as (rendezvous, _):
            with pytest.raises(EngineUnusableError, match=f"1 parameters were not sent, the first is {left_out}"):
                await engine.receive_weights(rendezvous, 3)
    finally:
        await engine.close()


@pytest.mark.parametrize("transport", [pytest.param("gloo", marks=pytest.mark.slow), "shared_memory"])
async def test_weights_arrive_to_the_bit_from_another_process(tiny_model_directory, tmp_path, transport) -> None:
    """The body of the tests between GPUs."""
    await assert_weights_arrive(tiny_model_directory, tmp_path, transport, torch.device("cpu"))


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["gloo", "shared_memory"])
async def test_engine_weights_equal_loaded_files(tiny_model_directory, tmp_path, transport) -> None:
    """vLLM's own checksums of a worker's weights, compared with an engine that read the files."""
    changed = perturbed(tiny_model_directory, tmp_path / "changed")
    held = []
    for model in (changed, tiny_model_directory):
        engine = make_engine(model, tmp_path / "engine.log")
        await engine.start()
        try:
            held.append(await engine.weight_checksums())
            if model == tiny_model_directory:
                async with sending(changed, tmp_path, "--transport", transport) as (rendezvous, _):
                    await engine.receive_weights(rendezvous, 1)
                held.append(await engine.weight_checksums())
        finally:
            await engine.close()
    loaded, before, after = held
    assert after == loaded
    assert after != before
