"""A probe of the engine after each weight transfer: a few sampled tokens that the learner computes as well."""

import asyncio
import contextlib
from collections.abc import Sequence
from itertools import cycle, islice
from types import TracebackType
from typing import Self

import numpy as np

from torl.base.errors import EngineError
from torl.base.types import Float32Array, SampledTurn, SamplingParameters, TrainingSample, TurnRequest
from torl.components.engine import Engine
from torl.learner.learner import Learner
from torl.run.config import TrainConfig
from torl.training.health import inexact_logprobs

_PROMPTS = 8  # one for each replica, if there are more
_TOKENS = 32


async def logprob_gaps(learner: Learner, samples: Sequence[TrainingSample], *, step: int) -> Float32Array:
    """Return |trainer logprob - engine logprob| of the tokens with a loss, in nats; empty without any.

    Args:
        learner: Learner, with the weights that sampled.
        samples: Samples of the engine.
        step: Training step whose temperature the log-probabilities have.

    Raises:
        LearnerError: The learner failed.
    """
    gaps = [
        np.abs(sample.old_logprobs - sample.rollout_logprobs)[sample.loss_mask]
        for sample in await learner.logprobs(samples, step=step)
        if sample.old_logprobs is not None
    ]
    return np.concatenate(gaps) if gaps else np.empty(0, np.float32)


class TransferProbe:
    """Samples a few tokens with each version of the policy on each replica, and compares them with the learner.

    It serves runs whose batches show no difference between engine and learner: asynchronous runs, which may have no
    token of the current policy, and engines that sample from another distribution by configuration. In all other runs
    it does nothing. Use it as an asynchronous context manager, which cancels the last sampling.
    """

    def __init__(self, config: TrainConfig, engine: Engine) -> None:
        """Create a probe for a run.

        Args:
            config: Configuration of the run.
            engine: Engine of the run.
        """
        self.enabled = config.rollout.max_staleness > 0 or inexact_logprobs(config) is not None
        self._config = config
        self._engine = engine
        self._version = -1
        self._turns: asyncio.Task[list[tuple[int, TrainingSample]]] | None = None

    def start(self, version: int, prompts: Sequence[Sequence[int]]) -> None:
        """Start sampling from a version of the policy, unless that has been started already.

        Args:
            version: Version of the policy, which the engine holds.
            prompts: Token ids of prompts.
        """
        if self.enabled and version != self._version:
            self._version = version
            self._turns = asyncio.create_task(self._sample(version, prompts))

    async def wait(self) -> None:
        """Wait until the tokens are sampled.

        Raises:
            EngineError: The engine failed, or sampled with another version.
        """
        if self._turns is not None:
            await self._turns

    async def gap(self, learner: Learner, version: int) -> float | None:
        """Return the mean |trainer logprob - engine logprob| of the replica with the largest, in nats.

        None without a token. The mean over all replicas would hide one with wrong weights among many.

        Args:
            learner: Learner, with the weights of the same version.
            version: Version of the policy.

        Raises:
            EngineError: The engine failed.
            LearnerError: The learner failed.
        """
        turns = [] if self._turns is None else await self._turns
        samples = [sample for _, sample in turns]
        replicas = np.repeat([replica for replica, _ in turns], [int(sample.loss_mask.sum()) for sample in samples])
        if not len(replicas):
            return None
        gaps = await logprob_gaps(learner, samples, step=version)
        return max(float(gaps[replicas == replica].mean(dtype=np.float64)) for replica in set(replicas.tolist()))

    async def _sample(self, version: int, prompts: Sequence[Sequence[int]]) -> list[tuple[int, TrainingSample]]:
        """Sample, and return the replica and the sample of each turn."""
        rollout = self._config.at_step(version).rollout
        sampling = SamplingParameters(min(_TOKENS, rollout.max_response_tokens), rollout.temperature)
        replicas = self._engine.replica_count
        count = max(min(len(prompts), _PROMPTS), replicas)
        prefixes = [_uncached(prompt, version) for prompt in islice(cycle(prompts), count)]
        requests = [
            TurnRequest(f"probe-{version}-{index}", prefix, sampling, episode=-1 - index, replica=index % replicas)
            for index, prefix in enumerate(prefixes)
        ]
        turns = await asyncio.gather(*map(self._sample_turn, requests))
        versions = {each for turn in turns for each, _ in turn.policy_versions}
        if versions - {version}:
            raise EngineError(
                f"the engine sampled with policy versions {sorted(versions)} after it received version {version}"
            )
        return [(turn.replica, _training_sample(prefix, turn)) for prefix, turn in zip(prefixes, turns, strict=True)]

    async def _sample_turn(self, request: TurnRequest) -> SampledTurn:
        try:
            return await self._engine.sample(request)
        finally:
            self._engine.forget(request.episode)  # it has an engine if its replica could not sample

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._turns is not None:
            self._turns.cancel()
            with contextlib.suppress(BaseException):  # a failed engine is reported by its watcher
                await self._turns


def _uncached(prompt: Sequence[int], version: int) -> list[int]:
    """Return a prompt with another beginning for each version, so that no cache has keys of an older policy for it."""
    count = len(prompt)
    return [prompt[version % count], prompt[version // count % count], *prompt][:count]


def _training_sample(prefix: Sequence[int], turn: SampledTurn) -> TrainingSample:
    before, after = len(prefix), len(turn.token_ids)
    return TrainingSample(
        token_ids=np.array([*prefix, *turn.token_ids], np.int32),
        loss_mask=np.arange(before + after) >= before,
        rollout_logprobs=np.array([0.0] * before + [*turn.logprobs], np.float32),
    )
