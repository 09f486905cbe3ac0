"""Shared devices handed over and back by `Residency`: two real engines and a real learner of two ranks."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

import tiny_model
from engine_checks import transformers_logprobs
from engines import make_replicas
from learner_fixtures import random_samples, start_learner
from ports import listening
from torl.base.types import SampledTurn, SamplingParameters, TurnRequest
from torl.components.engine import VllmReplicas
from torl.components.text.tokenizer import load_tokenizer
from torl.learner.learner import Learner
from torl.training.residency import (
    DeviceSharing,
    EngineMemory,
    InvalidTransitionError,
    LearnerLoan,
    LearnerMemory,
    Residency,
)


@dataclass
class Sides:
    """Learner and engines on the same devices, as a run has them when it begins."""

    learner: Learner
    engine: VllmReplicas
    residency: Residency
    prompt: tuple[int, ...]
    turns: int = 0

    async def turn(self) -> SampledTurn:
        self.turns += 1
        sampling = SamplingParameters(max_tokens=40, seed=self.turns)
        return await self.engine.sample(TurnRequest(f"turn-{self.turns}", self.prompt, sampling, episode=self.turns))

    async def checksums(self) -> list[Any]:
        """vLLM's own of what each worker holds."""
        return [await engine.weight_checksums() for engine in self.engine.engines]  # type: ignore[attr-defined]

    async def train(self, version: int, directory: Path) -> Path:
        """A step, and its published weights as transformers loads them."""
        async with self.residency.lend_learner() as loan:
            exported = await self.step(loan, version, directory)
            await loan.publish(version)
        return exported

    async def step(self, loan: LearnerLoan, version: int, directory: Path) -> Path:
        """A step without the publication of its weights."""
        await loan.learner.update(random_samples(6, seed=version), step=version)
        exported = directory / f"version-{version}"
        await loan.learner.export(exported)
        return exported

    def assert_sampled_by(self, turn: SampledTurn, version: int, model: Path) -> None:
        assert turn.policy_versions == ((version, 0),)
        expected = transformers_logprobs(model, self.prompt, [*turn.token_ids])
        assert np.abs(expected - turn.logprobs).max() < 1e-5


@pytest_asyncio.fixture(scope="module")
async def sides(tiny_model_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Sides]:
    logs = tmp_path_factory.mktemp("logs")
    engine = make_replicas(tiny_model_directory, logs / "engine.log", replicas=2, sleep_while_learning=True)
    await engine.start()
    try:
        settings = {"ranks": 2, "zero_stage": 3, "weight_transfer": "gloo", "offload": "while_sampling"}
        async with await start_learner(tiny_model_directory, logs, **settings) as learner:
            await learner.offload("optimizer")
            await learner.offload("parameters")
            residency = Residency(
                engine,
                learner,
                DeviceSharing(colocated=True, engine_sleeps=True, learner_offloads=True),
                policy_version=0,
                checksum=True,
            )
            prompt = load_tokenizer(tiny_model_directory).encode(tiny_model.prompt_text(12, 34))
            yield Sides(learner, engine, residency, tuple(prompt))
    finally:
        await engine.close()


async def test_requests_to_sleeping_engines_use_the_next_weights(sides: Sides, tmp_path: Path) -> None:
    residency = sides.residency
    for version in (1, 2):
        await sides.turn()
        async with residency.lend_learner() as loan:
            assert (residency.engine_memory, residency.learner_memory) == (EngineMemory.ASLEEP, LearnerMemory.RESIDENT)
            early = [asyncio.ensure_future(sides.turn()) for _ in range(4)]
            exported = await sides.step(loan, version, tmp_path)
            assert not any(turn.done() for turn in early)
            await loan.publish(version)
            assert (residency.engine_memory, residency.learner_memory) == (EngineMemory.AWAKE, LearnerMemory.OFFLOADED)
            with pytest.raises(InvalidTransitionError):
                _ = loan.learner
        for turn in [*await asyncio.gather(*early), await sides.turn()]:
            sides.assert_sampled_by(turn, version, exported)


async def test_weights_go_from_one_address_to_another(sides: Sides, tmp_path: Path) -> None:
    """As between two machines: rank 0 has a separate address, and engines have theirs."""
    group = sides.learner._group
    group.host = "127.0.0.2"
    exported = await sides.train(3, tmp_path)
    sides.assert_sampled_by(await sides.turn(), 3, exported)
    rank = group.ranks[0].process
    assert rank is not None
    assert "127.0.0.2" in {address for address, _ in listening(rank.pid)}
    for engine in sides.engine.engines:
        addresses = {address for address, _ in listening(engine.processes[0].pid)}
        assert "127.0.0.1" in addresses
        assert "127.0.0.2" not in addresses


async def test_restarted_engines_get_weights_when_none_samples(sides: Sides, tmp_path: Path) -> None:
    exported = await sides.train(4, tmp_path)
    held = await sides.checksums()
    supplying = asyncio.ensure_future(sides.residency.resend_weights())
    dead = sides.engine.engines
    for engine in dead:
        os.kill(engine.processes[0].pid, signal.SIGKILL)
    turn = await sides.turn()
    sides.assert_sampled_by(turn, 4, exported)
    assert not set(dead) & set(sides.engine.engines)
    assert await sides.checksums() == held  # those in their place have read nothing
    async with asyncio.timeout(60):
        while sides.residency.engine_memory is not EngineMemory.AWAKE:
            await asyncio.sleep(0.01)
    supplying.cancel()
    await asyncio.gather(supplying, return_exceptions=True)
