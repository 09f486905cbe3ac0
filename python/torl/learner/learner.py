"""The learner as the controller sees it: samples in, metrics out, weights to wherever the engine waits. No torch."""

import asyncio
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, Self

import numpy as np

from torl.config import AlgorithmConfig, CriticConfig, LearnerConfig, ModelConfig
from torl.errors import CheckpointError
from torl.learner.batch import Batch, carries_advantage, pack_batch, scatter_to_samples
from torl.learner.checkpoint import (
    LEARNER,
    read_controller_state,
    verify_checkpoint,
    writing_checkpoint,
)
from torl.learner.mini_batches import combine_reports, explained_variance, mini_batches
from torl.learner.ranks import RankGroup, RankProcess, start_rank
from torl.learner.setup import Annotation, LearnerSetup
from torl.learner.torchrun import accept_ranks, torchrun_job
from torl.types import Float32Array, TrainingSample

# What the libraries of a rank read from its environment.
_QUIET = {
    # By default OpenMP's threads spin while they wait for each other: beside busy processes that took 15 times as
    # long for a step.
    "OMP_WAIT_POLICY": "PASSIVE",
    "TORCHDYNAMO_DISABLE": "1",  # nothing is compiled, and importing the compiler takes seconds
    "TOKENIZERS_PARALLELISM": "false",
}


class Learner:
    """A group of rank processes that train one policy. Use as an asynchronous context manager, or call `close`.

    Any method raises LearnerError when a rank dies, raises or does not answer in time; all ranks are ended then and
    the learner is of no more use.
    """

    def __init__(self, group: RankGroup, setup: LearnerSetup) -> None:
        """Use `start`."""
        self._group = group
        self._setup = setup
        self._config = setup.learner

    @classmethod
    async def start(
        cls,
        *,
        model: ModelConfig,
        learner: LearnerConfig,
        algorithm: AlgorithmConfig,
        critic: CriticConfig,
        temperature: float,
        total_steps: int,
        seed: int,
        log_directory: Path,
        devices: Sequence[str] | None = None,
    ) -> Self:
        """Start the ranks and load the model on them.

        `devices` are the GPUs of the ranks, one each, as CUDA_VISIBLE_DEVICES names them; all that are visible when
        unset. Under torchrun its processes are the ranks, and this one must be rank 0 (see `torl.learner.torchrun`).
        Each rank that is started here writes what it prints to `log_directory/learner_rank_R.log`.

        Raises:
            DataError: the model directory cannot be read.
            LearnerError: a rank could not start.
        """
        job = torchrun_job()
        world_size = learner.ranks if job is None else job.world_size
        neighbours = world_size if job is None else job.local_world_size
        threads = learner.cpu_threads or max(1, len(os.sched_getaffinity(0)) // neighbours)
        with tempfile.TemporaryDirectory(prefix="torl-learner-") as meeting:
            setup = LearnerSetup(
                model=model,
                learner=learner,
                algorithm=algorithm,
                critic=critic,
                temperature=temperature,
                total_steps=total_steps,
                seed=seed,
                threads=threads,
                # A file needs no free port; torchrun has a place where its processes meet.
                master=f"file://{meeting}/store" if job is None else "env://",
            )

            group = RankGroup(learner.timeout_seconds)
            try:
                for rank in range(world_size if job is None else 1):
                    environment = _QUIET if job is not None else _QUIET | _local_environment(rank, world_size, devices)
                    group.ranks.append(
                        start_rank(
                            rank, world_size, log_directory=log_directory, environment=environment, threads=threads
                        )
                    )
                if job is not None:
                    others = await asyncio.to_thread(accept_ranks, job)
                    group.ranks += [RankProcess(rank, others[rank], None, None) for rank in sorted(others)]
                await group.set_up(setup)
            except BaseException:
                await group.kill()
                raise
        return cls(group, setup)

    @property
    def ranks(self) -> int:
        """Number of learner processes."""
        return len(self._group.ranks)

    async def prepare(self, samples: Sequence[TrainingSample]) -> list[TrainingSample]:
        """The samples with whatever the algorithm asks of the models before the first update on them.

        The trainer's own logprobs if more than one update is made or rewards pay for a divergence, the reference
        policy's if there is a KL term, and the critic's values if there is a critic; otherwise nothing is computed.
        """
        algorithm = self._setup.algorithm
        wanted: list[Annotation] = []
        if algorithm.needs_old_logprobs:
            wanted.append("old_logprobs")
        if algorithm.needs_reference:
            wanted.append("ref_logprobs")
        if algorithm.estimator == "ppo":
            wanted.append("values")
        return await self._annotate(samples, wanted)

    async def logprobs(self, samples: Sequence[TrainingSample]) -> list[TrainingSample]:
        """The samples with the current policy's logprobs after temperature as their `old_logprobs`."""
        return await self._annotate(samples, ["old_logprobs"])

    async def update(self, samples: Sequence[TrainingSample], *, step: int) -> dict[str, float]:
        """All optimizer steps on the samples of a step: the critic's first, then the policy's; their metrics.

        The critic has its own (`critic_...`). Where no trajectory has an advantage and no other term of the loss moves
        the policy, it is not updated, and its metrics are absent; `updates` counts its optimizer steps.

        Args:
            samples: with advantages, and all that `prepare` gives.
            step: of the run; it chooses the order of mini-batches.

        Raises:
            LearnerError: besides the general reasons, loss or gradient is not finite.
            ValueError: the samples cannot be learned from; see `pack_batch`.
        """
        setup, start = self._setup, time.perf_counter()
        metrics: dict[str, float] = {"updates": 0}
        if setup.algorithm.estimator == "ppo":
            parts = mini_batches(
                len(samples), setup.critic.epochs, setup.critic.mini_batches, (setup.seed, step, "critic")
            )
            chosen = [[samples[index] for index in part] for part in parts]
            reports = [await self.train_critic(part) for part in chosen if _has_loss(part)]
            metrics |= {f"critic_{name}": value for name, value in combine_reports(reports).items()}
            if reports:
                metrics["critic_explained_variance"] = explained_variance(samples)
        if step >= setup.critic.head_start_steps or setup.algorithm.estimator != "ppo":
            algorithm = setup.algorithm
            parts = mini_batches(len(samples), algorithm.epochs, algorithm.mini_batches, (setup.seed, step, "policy"))
            chosen = [[samples[index] for index in part] for part in parts]
            _require(samples, ["advantages", "old_logprobs"] if algorithm.updates > 1 else ["advantages"])
            reports = [await self.train_step(part) for part in chosen if self._moves_policy(part)]
            metrics |= combine_reports(reports) | {"updates": len(reports)}
        return metrics | {"seconds": time.perf_counter() - start}

    async def train_step(self, samples: Sequence[TrainingSample]) -> dict[str, float]:
        """One optimizer step of the policy on all samples; its metrics. See `update`."""
        algorithm = self._setup.algorithm
        _require(samples, ["advantages"])
        if algorithm.needs_reference:
            _require(samples, ["ref_logprobs"])
        batch = pack_batch(
            samples,
            row_tokens=self._config.row_tokens,
            ranks=self.ranks,
            aggregation=algorithm.aggregation,
            fixed_length=algorithm.fixed_length,
            skip_without_advantage=not algorithm.learns_without_advantage,
        )
        return await self._train("update_policy", batch)

    async def train_critic(self, samples: Sequence[TrainingSample]) -> dict[str, float]:
        """One optimizer step of the critic on all samples; its metrics. See `update`."""
        _require(samples, ["values", "returns"])
        batch = pack_batch(samples, row_tokens=self._config.row_tokens, ranks=self.ranks)
        return await self._train("update_critic", batch)

    async def _train(self, command: str, batch: Batch) -> dict[str, float]:
        arguments = [{"rows": rows, "sampled_tokens": batch.sampled_tokens} for rows in batch.rows]
        metrics: dict[str, float] = (await self._group.call(command, arguments))[0]
        return {
            **metrics,
            "tokens": batch.tokens,
            "sampled_tokens": batch.sampled_tokens,
            "samples": batch.samples,
            "rows": sum(len(row.samples) > 0 for rows in batch.rows for row in rows),
        }

    def _moves_policy(self, samples: Sequence[TrainingSample]) -> bool:
        if self._setup.algorithm.learns_without_advantage:
            return _has_loss(samples)
        return any(carries_advantage(sample) for sample in samples)

    async def _annotate(self, samples: Sequence[TrainingSample], wanted: Sequence[Annotation]) -> list[TrainingSample]:
        if not wanted or not _has_loss(samples):
            return [
                _annotated(sample, {name: np.zeros(len(sample), np.float32) for name in wanted}) for sample in samples
            ]
        batch = pack_batch(samples, row_tokens=self._config.row_tokens, ranks=self.ranks)
        arguments = [{"rows": rows, "wanted": tuple(wanted)} for rows in batch.rows]
        answers = await self._group.call("annotate", arguments)
        rows = [row for rank_rows in batch.rows for row in rank_rows]
        found = {
            name: scatter_to_samples(samples, rows, [values for answer in answers for values in answer[name]])
            for name in wanted
        }
        return [
            _annotated(sample, {name: arrays[index] for name, arrays in found.items()})
            for index, sample in enumerate(samples)
        ]

    async def open_channel(self, world_size: int, *, host: str = "127.0.0.1", backend: str = "gloo") -> Any:
        """Rank 0 listens for engine workers on a free port; returns the `Rendezvous` to give them.

        `world_size` is one more than the number of engine workers. Lasts for many transfers.
        """
        return (await self._call("open_channel", host=host, world_size=world_size, backend=backend))[0]

    async def send_weights(self, rendezvous: Any, *, checksum: bool = False) -> Any:
        """Send the weights to the engine workers that receive at `rendezvous`; returns a `TransferSummary`.

        Run it together with the engine's receiving call: it waits for them.

        Raises:
            WeightTransferError: a worker is gone or silent, or found a wrong checksum. Ends the learner.
        """
        return (await self._call("send_weights", rendezvous=rendezvous, checksum=checksum))[0]

    async def save_checkpoint(self, directory: Path, controller_state: dict[str, Any]) -> None:
        """Write a checkpoint of all ranks and of `controller_state` (JSON); `directory` is whole or as before.

        Raises:
            CheckpointError: it could not be written, for example because the disk is full.
        """
        with writing_checkpoint(directory, controller_state, self._facts()) as partial:
            (partial / LEARNER).mkdir()
            await self._call("save_checkpoint", directory=partial / LEARNER)

    async def load_checkpoint(self, directory: Path) -> dict[str, Any]:
        """Put every rank back as it was and return the controller's state.

        Raises:
            CheckpointError: it is damaged, or was written by another number of ranks, ZeRO stage or precision.
        """
        facts = verify_checkpoint(directory)
        if facts != self._facts():
            raise CheckpointError(f"checkpoint {directory} was written with {facts}; this learner has {self._facts()}")
        await self._call("load_checkpoint", directory=directory / LEARNER)
        return read_controller_state(directory)

    async def export(self, directory: Path) -> None:
        """Write the model to `directory` as transformers and vLLM load it, in the learner's precision.

        Raises:
            CheckpointError: it could not be written.
        """
        await self._call("export", directory=directory)

    async def offload(self) -> None:
        """Move weights and optimizer state out of GPU memory. Does nothing on a CPU."""
        await self._call("offload")

    async def onload(self) -> None:
        """Move them back."""
        await self._call("onload")

    async def watch(self) -> NoReturn:
        """Wait for ever, and raise LearnerError at once when a rank dies, even between two commands."""
        await self._group.watch()

    async def close(self) -> None:
        """End all ranks; none is left when this returns. Raises LearnerError if one did not end well."""
        await self._group.shut_down()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        if error_type is None:
            await self.close()
        else:
            await self._group.kill()

    def _facts(self) -> dict[str, Any]:
        """What has to fit between a checkpoint and the learner that loads it."""
        config = self._config
        facts = {"ranks": self.ranks, "zero_stage": config.zero_stage, "dtype": config.dtype}
        return facts | {"critic": True} if self._setup.algorithm.estimator == "ppo" else facts

    async def _call(self, command: str, **arguments: Any) -> list[Any]:
        return await self._group.call(command, [arguments] * self.ranks)


def _has_loss(samples: Sequence[TrainingSample]) -> bool:
    """Whether any token was sampled and carries a loss."""
    return any(sample.loss_mask.any() for sample in samples)


def _require(samples: Sequence[TrainingSample], names: Sequence[str]) -> None:
    """Raise ValueError where a sample lacks what an update would otherwise take for zero."""
    for index, sample in enumerate(samples):
        for name in names:
            if getattr(sample, name) is None:
                raise ValueError(
                    f"sample {index} has no {name}: see Learner.prepare and algorithms.samples.with_advantages"
                )


def _annotated(sample: TrainingSample, arrays: Mapping[Annotation, Float32Array]) -> TrainingSample:
    return replace(sample, **dict[str, Any](arrays))  # type: ignore[arg-type]


def _local_environment(rank: int, world_size: int, devices: Sequence[str] | None) -> dict[str, str]:
    """What torch.distributed and DeepSpeed read from the environment of a rank; torchrun provides it otherwise."""
    environment = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "GLOO_SOCKET_IFNAME": "lo",  # the ranks are on this machine; its name may not resolve
    }
    if devices is not None:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
    return environment
