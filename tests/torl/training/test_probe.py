"""The probe of the engine after a transfer: a few tokens of each version, compared with the learner's numbers."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from scripted_engine import ENCODER, ScriptedEngine
from torl.base.errors import EngineDiedError, EngineError
from torl.base.types import SampledTurn, TrainingSample
from torl.components.engine.replicas import Replicas
from torl.run.config import TrainConfig
from torl.run.config.loading import find_config, load_config
from torl.training.probe import TransferProbe

STALE = {"rollout.max_staleness": 1, "algorithm.importance_correction": "tis", "rollout.temperature": 0.7}
PROMPTS = [tuple(range(10, 18)), tuple(range(20, 25))]


class _Learner:
    """A learner whose log-probabilities are those of the engine, off by 0.25."""

    def __init__(self) -> None:
        self.samples: list[TrainingSample] = []

    async def logprobs(self, samples: Sequence[TrainingSample], *, step: int) -> list[TrainingSample]:
        self.samples += samples
        return [replace(sample, old_logprobs=sample.rollout_logprobs - np.float32(0.25)) for sample in samples]


def probe_of(engine: Any, settings: dict[str, Any] | None = None) -> TransferProbe:
    return TransferProbe(load_config(TrainConfig, find_config("demo"), STALE if settings is None else settings), engine)


def scripted(**settings: Any) -> ScriptedEngine:
    return ScriptedEngine(lambda _: ENCODER.encode("abcdefgh"), **settings)


@pytest.mark.parametrize(
    ("settings", "enabled"),
    [
        ({}, False),
        (STALE, True),
        ({"rollout.top_p": 0.9}, True),
        (STALE | {"engine.on_weight_update": "keep"}, True),
        ({"learner.max_logprob_gap": 0.1}, False),
    ],
)
async def test_probe_samples_where_batches_show_no_difference(settings: dict[str, Any], enabled: bool) -> None:
    engine, learner = scripted(), _Learner()
    async with probe_of(engine, settings) as probe:
        probe.start(0, PROMPTS)
        await probe.wait()
        found = await probe.gap(learner, 0)  # type: ignore[arg-type]
    assert found == (0.25 if enabled else None)
    assert len(engine.requests) == (2 if enabled else 0)


async def test_each_version_is_sampled_once_from_the_whole_distribution() -> None:
    engine = scripted(version=lambda name: int(name.split("-")[1]))
    async with probe_of(engine, STALE | {"rollout.top_p": 0.9}) as probe:
        for version in (0, 0, 1):
            probe.start(version, [PROMPTS[0]] * 9)
            await probe.wait()
    assert len(engine.requests) == 2 * 8
    sampling = next(iter(engine.requests.values())).sampling
    assert (sampling.top_p, sampling.temperature, sampling.max_tokens) == (1.0, 0.7, 32)


async def test_no_version_repeats_the_prefix_of_another() -> None:
    """Otherwise the engine would continue on keys and values of the older policy."""
    engine = scripted(version=lambda name: int(name.split("-")[1]))
    async with probe_of(engine) as probe:
        for version in range(50):
            probe.start(version, PROMPTS[:1])
            await probe.wait()
    prefixes = [tuple(request.token_ids) for request in engine.requests.values()]
    assert len({prefix[:2] for prefix in prefixes}) == 50
    assert {len(prefix) for prefix in prefixes} == {len(PROMPTS[0])}


async def test_samples_are_the_turns_after_their_prompts() -> None:
    learner = _Learner()
    async with probe_of(scripted(version=lambda _: 1)) as probe:
        probe.start(1, PROMPTS[1:])
        assert await probe.gap(learner, 0) == 0.25  # type: ignore[arg-type]
    (sample,) = learner.samples
    tokens = ENCODER.encode("abcdefgh")
    assert sample.token_ids.tolist()[5 : 5 + len(tokens)] == tokens
    assert sample.loss_mask.tolist() == [False] * 5 + [True] * (len(sample) - 5)
    assert sample.rollout_logprobs.tolist()[5:8] == [-0.5, -0.75, -1.0]


async def test_engine_without_the_transferred_version_is_an_error() -> None:
    async with probe_of(scripted()) as probe:
        probe.start(1, PROMPTS)
        with pytest.raises(EngineError, match=r"policy versions \[0\] after it received version 1"):
            await probe.wait()


def replicas_of(engines: Sequence[ScriptedEngine]) -> Replicas:
    return Replicas(
        lambda number, _: engines[number], len(engines), max_restarts=0, policy_version=0, shares_devices=False
    )


@pytest.mark.parametrize("count", [1, 4, 11])
async def test_each_replica_is_probed_whatever_its_load_and_no_episode_is_left(count: int) -> None:
    engines = [scripted() for _ in range(count)]
    replicas = replicas_of(engines)
    await replicas.start()
    for episode in range(50):
        replicas._router.route(episode, "", [0])
    async with probe_of(replicas) as probe:
        probe.start(0, PROMPTS)
        await probe.wait()
    assert {len(engine.requests) for engine in engines} == {2 if count == 1 else 1}
    assert replicas._router.loads() == {0: 50}
    await replicas.close()


async def test_a_replica_with_wrong_weights_is_not_averaged_away() -> None:
    engines = [scripted() for _ in range(4)]
    replicas = replicas_of(engines)
    await replicas.start()

    class Learner(_Learner):
        """The sample of the third replica has another gap."""

        async def logprobs(self, samples: Sequence[TrainingSample], *, step: int) -> list[TrainingSample]:
            found = await super().logprobs(samples, step=step)
            assert found[2].old_logprobs is not None
            return [*found[:2], replace(found[2], old_logprobs=found[2].rollout_logprobs + 3), *found[3:]]

    async with probe_of(replicas) as probe:
        probe.start(0, PROMPTS)
        assert await probe.gap(Learner(), 0) == 3  # type: ignore[arg-type]
    await replicas.close()


class Dying(ScriptedEngine):
    """Dies with its first turn."""

    async def sample(self, *arguments: Any) -> SampledTurn:
        raise EngineDiedError("killed")


async def test_turns_of_a_replica_that_dies_are_sampled_by_another_and_forgotten() -> None:
    engines = [scripted(), Dying(lambda _: [])]
    replicas = replicas_of(engines)
    await replicas.start()
    async with probe_of(replicas) as probe:
        probe.start(0, PROMPTS)
        await probe.wait()
    assert len(engines[0].requests) == 2
    assert replicas._router.loads() == {0: 0}
    await replicas.close()


async def test_old_weights_on_one_replica_are_an_error() -> None:
    replicas = replicas_of([scripted(version=lambda _: 5), scripted(version=lambda _: 5), scripted()])
    await replicas.start()
    async with probe_of(replicas) as probe:
        probe.start(5, PROMPTS)
        with pytest.raises(EngineError, match=r"policy versions \[0, 5\] after it received version 5"):
            await probe.wait()
    await replicas.close()


async def test_failed_engine_is_an_error_and_an_unused_probe_is_cancelled() -> None:
    others = asyncio.all_tasks()
    async with probe_of(scripted(fail_on="probe-0-1")) as probe:
        probe.start(0, PROMPTS)
        with pytest.raises(EngineError, match="the engine died"):
            await probe.wait()
    engine = scripted()
    async with probe_of(engine) as probe:
        probe.start(0, PROMPTS)
        await asyncio.sleep(0)
    assert engine.open == 0
    assert not asyncio.all_tasks() - others
