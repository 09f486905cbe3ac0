"""Two engines side by side: the code that several GPUs will run."""

import asyncio
import os
import signal
from dataclasses import replace

import numpy as np
import pytest
from conftest import make_engine
from test_engine_vllm import has_ended
from test_engine_weights import perturbed, sending, transformers_logprobs

from torl._core import TurnEnd
from torl.errors import EngineError
from torl.types import SamplingParameters

SAMPLING = SamplingParameters(max_tokens=60, seed=1)


@pytest.mark.usefixtures("temporary_directory")
async def test_two_engines_take_weights_keep_prefixes_and_die_together(tiny_model_directory, prompts, tmp_path) -> None:
    engine = make_engine(tiny_model_directory, tmp_path / "engine.log", data_parallel=2)
    await engine.start()
    try:
        assert len(engine.processes) == 2
        contexts = [[*prompt.token_ids * 4] for prompt in prompts]
        for turn in range(2):
            sampled = await asyncio.gather(
                *(
                    engine.sample(
                        context,
                        replace(SAMPLING, seed=n),
                        f"{n}/{turn}",
                        end=TurnEnd.never(),
                        at_line_start=True,
                        episode=n,
                    )
                    for n, context in enumerate(contexts)
                )
            )
            if turn == 1:  # the second turn went where the first had been
                assert all(each.cached_tokens >= 32 for each in sampled)
            contexts = [[*context, *each.token_ids[:-1]] for context, each in zip(contexts, sampled, strict=True)]
        changed = perturbed(tiny_model_directory, tmp_path / "changed")
        long = replace(SAMPLING, max_tokens=400)
        async with sending(changed, tmp_path, "--receivers", "2") as (rendezvous, process):
            turns = [
                asyncio.ensure_future(
                    engine.sample(
                        prompt.token_ids,
                        replace(long, seed=n),
                        f"live-{n}",
                        end=TurnEnd.never(),
                        at_line_start=True,
                        episode=n,
                    )
                )
                for n, prompt in enumerate(prompts)
            ]
            await asyncio.sleep(0.1)
            await engine.receive_weights(rendezvous, 1)
            assert await process.wait() == 0
        for prompt, each in zip(prompts, await asyncio.gather(*turns), strict=True):
            ids = list(each.token_ids)
            stops = [*(start for _, start in each.policy_versions[1:]), len(ids)]
            for (version, start), stop in zip(each.policy_versions, stops, strict=True):
                model = (tiny_model_directory, changed)[version]
                logprobs = transformers_logprobs(model, prompt.token_ids, ids)[start:stop]
                assert np.abs(logprobs - each.logprobs[start:stop]).max() < 1e-4
        late = await engine.sample(
            prompts[0].token_ids, SAMPLING, "late", end=TurnEnd.never(), at_line_start=True, episode=1
        )
        assert late.policy_versions == ((1, 0),)
        processes = engine.processes
        watch = asyncio.ensure_future(engine.watch())
        os.kill(processes[1].pid, signal.SIGKILL)
        with pytest.raises(EngineError, match="died"):
            await asyncio.wait_for(watch, 120)
        with pytest.raises(EngineError, match="died"):
            await engine.sample(
                prompts[0].token_ids, SAMPLING, "dead", end=TurnEnd.never(), at_line_start=True, episode=0
            )
    finally:
        await engine.close()
    assert all(has_ended(process.pid) for process in processes)
