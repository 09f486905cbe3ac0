"""Each family trained in a real learner and sampled in a real engine: both compute the same policy after transfers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from engines import make_engine
from learner_fixtures import TEMPERATURE, start_learner
from model_families import FAMILIES, write_family
from torl.base.errors import EngineError
from torl.base.types import Prompt, SamplingParameters, TrainingSample, TurnRequest
from torl.components.engine import VllmEngine
from torl.learner.learner import Learner
from torl.run.config import AlgorithmConfig, TrainConfig
from torl.run.config.loading import find_config, load_config
from torl.run.records.metric_names import LOGPROB_GAP_ON_POLICY, LOGPROB_GAP_PROBE
from torl.training.health import PolicyComparison
from torl.training.probe import TransferProbe
from weight_sending import sending

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_ranks")]


@dataclass
class Pair:
    """A learner and an engine of one model, which begin with its files."""

    learner: Learner
    engine: VllmEngine
    prompts: list[Prompt]
    step: int = 0

    async def sample(self) -> list[TrainingSample]:
        """Samples of the engine, with the learner's log-probabilities and random advantages."""
        turns = [
            self.engine.sample(
                TurnRequest(
                    f"{self.step}-{index}",
                    prompt.token_ids,
                    SamplingParameters(max_tokens=40, temperature=TEMPERATURE, seed=100 * self.step + index),
                )
            )
            for index, prompt in enumerate(self.prompts)
        ]
        samples = []
        for prompt, turn in zip(self.prompts, await asyncio.gather(*turns), strict=True):
            before, after = len(prompt.token_ids), len(turn.token_ids)
            samples.append(
                TrainingSample(
                    token_ids=np.array([*prompt.token_ids, *turn.token_ids], np.int32),
                    loss_mask=np.arange(before + after) >= before,
                    rollout_logprobs=np.array([0.0] * before + [*turn.logprobs], np.float32),
                    advantages=np.array([0.0] * before + [(-1.0) ** len(samples)] * after, np.float32),
                )
            )
        return await self.learner.annotate(samples)

    async def update(self, samples: list[TrainingSample]) -> float:
        """Take a step, and return the mean change of the samples' log-probabilities."""
        await self.learner.update(samples, step=self.step)
        self.step += 1
        after = await self.learner.annotate([replace(sample, old_logprobs=None) for sample in samples])
        return gap([replace(new, rollout_logprobs=old.old_logprobs) for new, old in zip(after, samples, strict=True)])

    async def transfer(self) -> None:
        """Send the learner's weights to the engine."""
        rendezvous = await self.learner.open_channel(await self.engine.select_receivers())
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.learner.send_weights(rendezvous, checksum=True))
            tasks.create_task(self.engine.receive_weights(rendezvous, self.step))


@asynccontextmanager
async def started(model: Path, prompts: list[Prompt], logs: Path) -> AsyncIterator[Pair]:
    engine = make_engine(model, logs / "engine.log", cpu_kv_cache_gib=1)
    await engine.start()
    try:
        # Several optimizer steps, so that `annotate` computes log-probabilities.
        several = AlgorithmConfig.model_validate({"mini_batches": 2})
        async with await start_learner(model, logs, algorithm=several) as learner:
            yield Pair(learner, engine, prompts)
    finally:
        await engine.close()


def gap(samples: list[TrainingSample]) -> float:
    """Mean |trainer logprob - engine logprob| of the sampled tokens."""
    gaps: list[Any] = []
    for sample in samples:
        assert sample.old_logprobs is not None
        gaps.append(np.abs(sample.old_logprobs - sample.rollout_logprobs)[sample.loss_mask])
    return float(np.concatenate(gaps).mean())


async def probe_gap(pair: Pair, version: int = 1) -> float:
    """The gap that an asynchronous run would see."""
    settings = {
        "rollout.max_staleness": 1,
        "algorithm.importance_correction": "tis",
        "rollout.temperature": TEMPERATURE,
    }
    async with TransferProbe(load_config(TrainConfig, find_config("demo"), settings), pair.engine) as probe:
        probe.start(version, [prompt.token_ids for prompt in pair.prompts])
        found = await probe.gap(pair.learner, version)
    assert found is not None
    return found


@pytest.mark.parametrize("model_type", FAMILIES)
async def test_engine_samples_from_the_policy_of_the_learner(
    model_type: str, tiny_model_directory: Path, prompts: list[Prompt], tmp_path: Path
) -> None:
    model = write_family(model_type, tmp_path / "model", tokenizer=tiny_model_directory)
    async with started(model, prompts, tmp_path) as pair:
        gaps = []
        for _ in range(3):
            samples = await pair.sample()
            gaps.append(gap(samples))
            assert await pair.update(samples) > 0.05  # an engine that keeps its weights would show
            await pair.transfer()
        await pair.learner.export(tmp_path / "export")
    assert max(gaps) < 5e-6, gaps
    assert load_file(tmp_path / "export/model.safetensors").keys() == load_file(model / "model.safetensors").keys()


async def test_engine_with_other_weights_stops_the_run_in_its_step(
    tiny_model_directory: Path, prompts: list[Prompt], tmp_path: Path
) -> None:
    """The engine misses a transfer, then takes a layer whose experts are permuted."""
    config = load_config(TrainConfig, find_config("demo"), {"engine.dtype": "float32", "learner.dtype": "float32"})
    check = PolicyComparison(config, on_gpus=False)
    model = write_family("qwen3_moe", tmp_path / "model", tokenizer=tiny_model_directory)
    async with started(model, prompts, tmp_path) as pair:
        samples = await pair.sample()
        check.require_match(0, {LOGPROB_GAP_ON_POLICY: gap(samples)})
        await pair.update(samples)
        with pytest.raises(EngineError, match="step 2: engine and learner hold different policies"):
            check.require_match(1, {LOGPROB_GAP_ON_POLICY: gap(await pair.sample())})
        await pair.transfer()
        check.require_match(1, {LOGPROB_GAP_ON_POLICY: gap(await pair.sample())})
        check.require_match(1, {LOGPROB_GAP_PROBE: await probe_gap(pair)})

        await pair.learner.export(tmp_path / "permuted")
        weights = load_file(tmp_path / "permuted/model.safetensors")
        first, second = (f"model.layers.0.mlp.experts.{expert}.down_proj.weight" for expert in range(2))
        weights[first], weights[second] = weights[second], weights[first]
        save_file(weights, tmp_path / "permuted/model.safetensors", metadata={"format": "pt"})
        async with sending(tmp_path / "permuted", tmp_path) as (rendezvous, process):
            await pair.engine.receive_weights(rendezvous, 2)
            assert await process.wait() == 0
        with pytest.raises(EngineError, match="step 2: engine and learner hold different policies"):
            check.require_match(1, {LOGPROB_GAP_ON_POLICY: gap(await pair.sample())})
        with pytest.raises(EngineError, match="step 2: engine and learner hold different policies"):
            check.require_match(1, {LOGPROB_GAP_PROBE: await probe_gap(pair, version=2)})
