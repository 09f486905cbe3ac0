"""Two engines side by side: the code that several GPUs will run."""

import asyncio
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from engine_checks import has_ended, transformers_logprobs
from engines import make_replicas
from torl.base.errors import EngineError
from torl.base.types import SampledTurn, SamplingParameters, TurnRequest
from weight_sending import perturbed, sending

if TYPE_CHECKING:
    from torl.base.types import Prompt
    from torl.components.engine import VllmReplicas

SAMPLING = SamplingParameters(max_tokens=60, seed=1)


async def play(
    engine: "VllmReplicas", contexts: Sequence[Sequence[int]], sampling: SamplingParameters, name: str
) -> list[SampledTurn]:
    """A turn after each context; the number of the context is that of the episode and makes the seed."""
    return await asyncio.gather(
        *(
            engine.sample(TurnRequest(f"{name}/{number}", context, replace(sampling, seed=number), episode=number))
            for number, context in enumerate(contexts)
        )
    )


async def receive(engine: "VllmReplicas", model: Path, directory: Path, version: int, receivers: int) -> None:
    """Send the engine the weights of a model's directory."""
    assert (await engine.select_receivers()).count == receivers
    async with sending(model, directory, "--receivers", str(receivers)) as (rendezvous, process):
        await engine.receive_weights(rendezvous, version)
        assert await process.wait() == 0


@pytest.mark.slow
@pytest.mark.usefixtures("temporary_directory")
async def test_two_engines_sample_as_one_and_outlive_each_other(
    tiny_model_directory: Path, prompts: "list[Prompt]", tmp_path: Path
) -> None:
    engine = make_replicas(tiny_model_directory, tmp_path / "engine.log", replicas=2, max_restarts=1)
    await engine.start()
    processes = [process for each in engine.engines for process in each.processes]
    try:
        assert len(processes) == 2
        cores = [os.sched_getaffinity(process.pid) for process in processes]
        assert cores[0] | cores[1] == os.sched_getaffinity(0)
        assert len(os.sched_getaffinity(0)) == 1 or not cores[0] & cores[1]
        # An episode's second turn finds its prefix cached: it goes where the first one was.
        contexts = [[*prompt.token_ids * 4] for prompt in prompts]
        sampled = await play(engine, contexts, SAMPLING, "first")
        contexts = [[*context, *each.token_ids[:-1]] for context, each in zip(contexts, sampled, strict=True)]
        assert all(each.cached_tokens >= 32 for each in await play(engine, contexts, SAMPLING, "second"))
        for number in range(len(prompts)):
            engine.forget(number)

        # Weights arrive in both while they sample.
        changed = perturbed(tiny_model_directory, tmp_path / "changed")
        contexts = [[*prompt.token_ids] for prompt in prompts]
        long = replace(SAMPLING, max_tokens=400)
        live = asyncio.ensure_future(play(engine, contexts, long, "live"))
        while not all(each.live_requests for each in engine.engines):
            await asyncio.sleep(0.01)
        await receive(engine, changed, tmp_path, 1, receivers=2)
        for prompt, each in zip(prompts, await live, strict=True):
            ids = list(each.token_ids)
            stops = [*(start for _, start in each.policy_versions[1:]), len(ids)]
            for (version, start), stop in zip(each.policy_versions, stops, strict=True):
                model = (tiny_model_directory, changed)[version]
                logprobs = transformers_logprobs(model, prompt.token_ids, ids)[start:stop]
                assert np.abs(logprobs - each.logprobs[start:stop]).max() < 1e-4

        # One is killed in the middle of its turns: they come out as if nothing had happened.
        undisturbed = await play(engine, contexts, long, "undisturbed")
        disturbed = asyncio.ensure_future(play(engine, contexts, long, "disturbed"))
        dead = engine.engines[1]
        while not dead.live_requests:
            await asyncio.sleep(0.01)
        # When a short turn has ended there, the long ones have begun.
        await dead.sample(TurnRequest("short", contexts[0], replace(SAMPLING, max_tokens=3)))
        assert dead.live_requests
        os.kill(dead.processes[0].pid, signal.SIGKILL)
        for before, after in zip(undisturbed, await disturbed, strict=True):
            assert after.token_ids == before.token_ids
            assert np.abs(np.subtract(after.logprobs, before.logprobs)).max() < 1e-4
            assert after.policy_versions == before.policy_versions == ((1, 0),)
        for number in range(len(prompts)):
            engine.forget(number)

        # The one in its place samples when it has the weights of the others.
        async with asyncio.timeout(240):
            while not engine.needs_weights:
                engine.check()
                await asyncio.sleep(0.1)
        assert engine.engines[1] is not dead
        await play(engine, contexts[:2], SAMPLING, "without it")
        assert engine.is_serving
        await receive(engine, changed, tmp_path, 1, receivers=2)
        assert not engine.needs_weights
        both = await play(engine, contexts, long, "both")
        assert [each.token_ids for each in both] == [each.token_ids for each in undisturbed]

        # It has been replaced as often as it may be.
        processes += engine.engines[1].processes
        watch = asyncio.ensure_future(engine.watch())
        os.kill(engine.engines[1].processes[0].pid, signal.SIGKILL)
        with pytest.raises(
            EngineError,
            match=r"was ended by SIGKILL \(after 1 restarts \(cluster.max_restarts\)\)\nthe end of .*engine_1.log:\n",
        ):
            await asyncio.wait_for(watch, 120)
        with pytest.raises(EngineError, match="was ended by SIGKILL"):
            await play(engine, contexts[:1], SAMPLING, "dead")
    finally:
        await engine.close()
    assert all(has_ended(process.pid) for process in processes)
