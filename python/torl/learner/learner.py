"""The learner as the controller sees it: samples in, metrics out, weights to wherever the engine waits. No torch."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Self, cast

from torl.learner.annotation import annotate, wanted_annotations
from torl.learner.checkpoint.ranks import begin_checkpoint, load_ranks
from torl.learner.launch import start_ranks
from torl.learner.messages import ChannelRequest, LearnerMemoryPart, LearnerSetup
from torl.learner.optimizer_steps import take_steps
from torl.learner.ranks import RankGroup
from torl.runtime.cluster import Cluster, LocalCluster
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
        self._writing: asyncio.Task[None] | None = None  # a checkpoint

    @classmethod
    async def start(
        cls,
        setup: LearnerSetup,
        *,
        log_directory: Path,
        devices: Sequence[str] | None = None,
        cluster: Cluster | None = None,
        nodes: Sequence[int] = (0,),
    ) -> Self:
        """Start the ranks and load the model on them.

        Args:
            setup: what is learned; of a run, `LearnerSetup.from_config`.
            log_directory: each rank writes what it prints to `learner_rank_R.log` there.
            devices: the GPUs of the ranks, one each, as CUDA_VISIBLE_DEVICES names them; all that are visible when
                unset.
            cluster: where the ranks are; here when unset.
            nodes: that of each rank, in a cluster that is apart.

        Raises:
            DataError: the model directory cannot be read.
            LearnerError: a rank could not start.
        """
        return cls(await start_ranks(setup, log_directory, devices, cluster or LocalCluster(), nodes), setup)

    @property
    def ranks(self) -> int:
        """Number of learner processes."""
        return len(self._group.ranks)

    @property
    def stack_logs(self) -> Mapping[Path, Sequence[int]]:
        """The ranks that write their stacks when they are asked (`torl.runtime.processes.stacks`), by their logs."""
        return self._group.stack_logs

    async def write_stacks_elsewhere(self) -> None:
        """Have the ranks on the nodes of a cluster write theirs, to logs that are gathered beside those."""
        await self._group.write_stacks_elsewhere()

    async def annotate(self, samples: Sequence[TrainingSample]) -> list[TrainingSample]:
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

    async def open_channel(
        self,
        receivers: int,
        *,
        colocated: bool = True,
        reconnect: bool = False,
        nodes: Sequence[int] = (),
    ) -> Rendezvous:
        """Rank 0 listens for engine workers on a free port; returns where, to tell them and `send_weights`.

        The connections last for many transfers: asked again, the same answer comes.

        Args:
            receivers: engine workers; `Rendezvous` says which rank each of them takes its weights from.
            colocated: whether learner and engine share their GPUs; with `learner.weight_transfer` it decides the way.
            reconnect: connect anew, because the workers are not those of the last transfer.
            nodes: that of each worker, so that a network carries the weights to every node once.

        Raises:
            WeightTransferError: `learner.weight_transfer` cannot be here. Ends the learner.
        """
        group = self._group
        where = ChannelRequest(receivers, group.host, colocated, group.on_one_machine, reconnect, tuple(nodes))
        answers = await group.call_all("open_channel", where=where)
        return cast(Rendezvous, answers[0])

    async def send_weights(self, rendezvous: Rendezvous, *, checksum: bool = False) -> TransferSummary:
        """Send the weights to the engine workers that receive at `rendezvous`, each rank to its own.

        Run it together with the engine's receiving call: it waits for them.

        Raises:
            WeightTransferError: a worker has ended, is silent, or found a wrong checksum. Ends the learner.
        """
        answers = await self._group.call_all("send_weights", rendezvous=rendezvous, checksum=checksum)
        return TransferSummary.combine(answers)

    async def begin_checkpoint(self, directory: Path, controller_state: dict[str, Any]) -> "asyncio.Task[None]":
        """Begin to write a checkpoint of all ranks and of `controller_state` (JSON); returns when all is copied.

        The ranks write behind whatever is asked of them next. `directory` is whole when the task that is returned has
        ended, and as before if it raises:

            CheckpointError: it could not be written, for example because the disk is full. The learner goes on.
            LearnerError: a rank has gone meanwhile.

        One checkpoint is written at a time: this waits for the one before.
        """
        if self._writing is not None:
            await asyncio.wait([self._writing])
        self._writing = await begin_checkpoint(self._group, self._setup, directory, controller_state)
        return self._writing

    async def save_checkpoint(self, directory: Path, controller_state: dict[str, Any]) -> None:
        """Write a checkpoint and wait until it is whole; raises what the task of `begin_checkpoint` raises."""
        await (await self.begin_checkpoint(directory, controller_state))

    async def load_checkpoint(self, directory: Path, *, verified: bool = False) -> dict[str, Any]:
        """Put every rank back as it was and return the controller's state.

        The learner may have another number of ranks and another ZeRO stage than the one that wrote it. `verified`: it
        has just been compared with its hashes, as `latest_checkpoint` does, and need not be again.

        Raises:
            CheckpointError: it is damaged, or of another model or precision.
        """
        return await load_ranks(self._group, self._setup, directory, verified=verified)

    async def export(self, directory: Path) -> None:
        """Write the model to `directory` as transformers and vLLM load it, in the learner's precision.

        Raises:
            CheckpointError: it could not be written.
        """
        await self._group.call_all("export", directory=directory)

    async def offload(self, part: LearnerMemoryPart) -> None:
        """Move the optimizer's state or the parameters out of GPU memory; what is away already stays there.

        Without its optimizer's state it still sends and exports weights. A checkpoint needs nothing on the GPU.
        """
        await self._group.call_all("offload", part=part)

    async def onload(self) -> None:
        """Move everything back into GPU memory; needed before an update, annotations, an export, and a resume."""
        await self._group.call_all("onload")

    async def watch(self) -> NoReturn:
        """Wait without end, and raise LearnerError at once when a rank dies, even between two commands."""
        await self._group.watch()

    async def close(self) -> None:
        """End all ranks when what they write is written; none is left when this returns.

        Raises:
            LearnerError: a rank did not end well.
        """
        if self._writing is not None:
            await asyncio.wait([self._writing])
        await self._group.shut_down()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        if error_type is None:
            await self.close()
        else:
            await self._group.kill()
            if self._writing is not None:
                await asyncio.wait([self._writing])  # it removes what it has begun
