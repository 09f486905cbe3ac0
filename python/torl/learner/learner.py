"""The learner as the controller sees it: samples in, metrics out, weights to wherever the engine waits. No torch."""

import asyncio
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn, Self

from torl.config import AlgorithmConfig, LearnerConfig, ModelConfig
from torl.errors import CheckpointError
from torl.learner.batch import pack_batch, scatter_to_samples
from torl.learner.checkpoint import (
    LEARNER,
    read_controller_state,
    verify_checkpoint,
    writing_checkpoint,
)
from torl.learner.ranks import RankGroup, RankProcess, start_rank
from torl.learner.setup import LearnerSetup
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

    def __init__(self, group: RankGroup, learner: LearnerConfig, log_directory: Path) -> None:
        """Use `start`."""
        self._group = group
        self._config = learner
        self._log_directory = log_directory

    @classmethod
    async def start(
        cls,
        *,
        model: ModelConfig,
        learner: LearnerConfig,
        algorithm: AlgorithmConfig,
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
        return cls(group, learner, log_directory)

    @property
    def ranks(self) -> int:
        """Number of learner processes."""
        return len(self._group.ranks)

    async def train_step(
        self, samples: Sequence[TrainingSample], old_logprobs: Sequence[Float32Array] | None = None
    ) -> dict[str, float]:
        """One optimizer step on all samples; its metrics.

        `old_logprobs[i]`, aligned with the tokens of sample i, are the policy's before the first update on these
        samples (from `logprobs`); when unset this is the first update and the weights themselves provide them.

        Raises:
            LearnerError: besides the general reasons, loss or gradient is not finite.
            ValueError: the samples cannot be learned from; see `pack_batch`.
        """
        start = time.perf_counter()
        batch = pack_batch(samples, row_tokens=self._config.row_tokens, ranks=self.ranks, old_logprobs=old_logprobs)
        arguments = [{"rows": rows, "sampled_tokens": batch.sampled_tokens} for rows in batch.rows]
        metrics: dict[str, float] = (await self._group.call("train_step", arguments))[0]
        return {
            **metrics,
            "tokens": batch.tokens,
            "sampled_tokens": batch.sampled_tokens,
            "samples": batch.samples,
            "rows": sum(len(row.samples) > 0 for rows in batch.rows for row in rows),
            "seconds": time.perf_counter() - start,
        }

    async def logprobs(self, samples: Sequence[TrainingSample]) -> list[Float32Array]:
        """The current policy's logprobs after temperature: for each sample one value a token, 0 where not sampled."""
        batch = pack_batch(samples, row_tokens=self._config.row_tokens, ranks=self.ranks)
        values = await self._group.call("logprobs", [{"rows": rows} for rows in batch.rows])
        rows = [row for rank_rows in batch.rows for row in rank_rows]
        return scatter_to_samples(samples, rows, [value for rank_values in values for value in rank_values])

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
        facts = {"ranks": self.ranks, "zero_stage": self._config.zero_stage, "dtype": self._config.dtype}
        with writing_checkpoint(directory, controller_state, facts) as partial:
            (partial / LEARNER).mkdir()
            await self._call("save_checkpoint", directory=partial / LEARNER)

    async def load_checkpoint(self, directory: Path) -> dict[str, Any]:
        """Put every rank back as it was and return the controller's state.

        Raises:
            CheckpointError: it is damaged, or was written by another number of ranks, ZeRO stage or precision.
        """
        facts = verify_checkpoint(directory)
        ours = {"ranks": self.ranks, "zero_stage": self._config.zero_stage, "dtype": self._config.dtype}
        if facts != ours:
            raise CheckpointError(f"checkpoint {directory} was written with {facts}; this learner has {ours}")
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

    async def _call(self, command: str, **arguments: Any) -> list[Any]:
        return await self._group.call(command, [arguments] * self.ranks)


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
