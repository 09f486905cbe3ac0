"""The learner as the controller sees it: samples in, metrics out, weights to wherever the engine waits. No torch."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Self, cast

from torl.learner.annotation import annotate, wanted_annotations
from torl.learner.checkpoint.ranks import load_ranks, save_ranks
from torl.learner.messages import LearnerMemoryPart, LearnerSetup
from torl.learner.optimizer_steps import take_steps
from torl.learner.ranks import RankGroup
from torl.learner.starting import start_ranks
from torl.types import TrainingSample
from torl.weights.rendezvous import Rendezvous, TransferSummary


class Learner:
    """A group of rank processes that train one policy. Use as an asynchronous context manager, or call `close`.

    Any method raises LearnerError when a rank dies, raises or does not answer in time; all ranks are ended then and
    the learner is of no more use.
    """

    def __init__(self, group: RankGroup, setup: LearnerSetup) -> None:
        """Use `start`."""
        self._group = group
        self._setup = setup

    @classmethod
    async def start(cls, setup: LearnerSetup, *, log_directory: Path, devices: Sequence[str] | None = None) -> Self:
        """Start the ranks and load the model on them.

        Under torchrun its processes are the ranks, and this one must be rank 0 (see `torl.learner.torchrun`).

        Args:
            setup: what is learned; of a run, `LearnerSetup.from_config`.
            log_directory: each rank that is started here writes what it prints to `learner_rank_R.log` there.
            devices: the GPUs of the ranks, one each, as CUDA_VISIBLE_DEVICES names them; all that are visible when
                unset.

        Raises:
            DataError: the model directory cannot be read.
            LearnerError: a rank could not start.
        """
        return cls(await start_ranks(setup, log_directory, devices), setup)

    @property
    def ranks(self) -> int:
        """Number of learner processes."""
        return len(self._group.ranks)

    @property
    def stack_logs(self) -> Mapping[Path, Sequence[int]]:
        """The ranks that write their stacks when they are asked (`torl.processes.stacks`), by their logs."""
        return self._group.stack_logs

    async def prepare(self, samples: Sequence[TrainingSample]) -> list[TrainingSample]:
        """The samples with whatever the algorithm asks of the models before the first update on them.

        The trainer's own logprobs if more than one update is made or rewards pay for a divergence, the reference
        policy's if there is a KL term, and the critic's values if there is a critic; otherwise nothing is computed.
        """
        wanted = wanted_annotations(self._setup.algorithm)
        return await annotate(self._group, samples, wanted, self._setup.learner)

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
        return await take_steps(self._group, self._setup, samples, step)

    async def open_channel(self, world_size: int, *, host: str = "127.0.0.1", backend: str = "gloo") -> Rendezvous:
        """Rank 0 listens for engine workers on a free port; returns where, to tell them.

        `world_size` is one more than the number of engine workers. Lasts for many transfers.
        """
        answers = await self._group.call_all("open_channel", host=host, world_size=world_size, backend=backend)
        return cast(Rendezvous, answers[0])

    async def send_weights(self, rendezvous: Rendezvous, *, checksum: bool = False) -> TransferSummary:
        """Send the weights to the engine workers that receive at `rendezvous`.

        Run it together with the engine's receiving call: it waits for them.

        Raises:
            WeightTransferError: a worker has ended, is silent, or found a wrong checksum. Ends the learner.
        """
        answers = await self._group.call_all("send_weights", rendezvous=rendezvous, checksum=checksum)
        return cast(TransferSummary, answers[0])

    async def save_checkpoint(self, directory: Path, controller_state: dict[str, Any]) -> None:
        """Write a checkpoint of all ranks and of `controller_state` (JSON); `directory` is whole or as before.

        Raises:
            CheckpointError: it could not be written, for example because the disk is full.
        """
        await save_ranks(self._group, self._setup, directory, controller_state)

    async def load_checkpoint(self, directory: Path) -> dict[str, Any]:
        """Put every rank back as it was and return the controller's state.

        Raises:
            CheckpointError: it is damaged, or was written by another number of ranks, ZeRO stage or precision.
        """
        return await load_ranks(self._group, self._setup, directory)

    async def export(self, directory: Path) -> None:
        """Write the model to `directory` as transformers and vLLM load it, in the learner's precision.

        Raises:
            CheckpointError: it could not be written.
        """
        await self._group.call_all("export", directory=directory)

    async def offload(self, part: LearnerMemoryPart) -> None:
        """Move the optimizer's state or the parameters out of GPU memory. Does nothing on a CPU."""
        await self._group.call_all("offload", part=part)

    async def onload(self) -> None:
        """Move weights and optimizer state back into GPU memory; needed before anything else is asked."""
        await self._group.call_all("onload")

    async def watch(self) -> NoReturn:
        """Wait without end, and raise LearnerError at once when a rank dies, even between two commands."""
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
