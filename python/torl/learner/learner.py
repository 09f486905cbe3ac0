"""The learner's interface for the controller: annotate samples, update, send weights, write checkpoints. No torch."""

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Self, cast

from torl.base.runtime.cluster import Cluster, LocalCluster
from torl.base.types import TrainingSample, UpdateNumbers
from torl.components.weights.rendezvous import Receivers, Rendezvous, TransferSummary
from torl.learner.checkpoint.ranks import begin_checkpoint, load_ranks
from torl.learner.launch import start_ranks
from torl.learner.messages import (
    Export,
    LearnerMemoryPart,
    LearnerSetup,
    Offload,
    Onload,
    OpenChannel,
    SendWeights,
    SumWeights,
)
from torl.learner.optimizer_steps import annotate, required_annotations, take_steps
from torl.learner.ranks import RankGroup


class Learner:
    """A group of rank processes that train one policy. Use as an asynchronous context manager, or call `close`.

    Any method raises LearnerError if a rank exits, raises or does not reply before the timeout. All ranks are then
    ended, and the learner is unusable.
    """

    def __init__(self, group: RankGroup, setup: LearnerSetup) -> None:
        """Use `start`."""
        self._group = group
        self._setup = setup
        self._checkpoint_write: asyncio.Task[None] | None = None

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
            setup: Model and settings. For a run, `LearnerSetup.from_config`.
            log_directory: Directory of the ranks' logs, `learner_rank_R.log`.
            devices: GPU of each rank, as in CUDA_VISIBLE_DEVICES. Defaults to all visible GPUs.
            cluster: Cluster of the ranks. Defaults to this machine.
            nodes: Node of each rank in a remote cluster.

        Raises:
            DataError: The model directory cannot be read.
            LearnerError: A rank could not start.
        """
        return cls(await start_ranks(setup, log_directory, devices, cluster or LocalCluster(), nodes), setup)

    @property
    def ranks(self) -> int:
        """Number of learner processes."""
        return len(self._group.ranks)

    @property
    def processes_by_log(self) -> Mapping[Path, Sequence[int]]:
        """Ids of the ranks' processes on this machine, by their logs, for `torl.base.runtime.processes.hangs`."""
        return self._group.processes_by_log

    async def dump_remote_stacks(self) -> None:
        """Make the ranks on other machines write their stacks to their logs, which are gathered here."""
        await self._group.dump_remote_stacks()

    async def annotate(self, samples: Sequence[TrainingSample], *, step: int = 0) -> list[TrainingSample]:
        """Add the values that the algorithm needs from the models before the first update on the samples.

        These are the trainer's log-probabilities if there are several optimizer steps or a KL penalty on rewards, the
        reference model's log-probabilities if there is a KL term, and the critic's values if there is a critic.
        Without any of these, nothing is computed.

        Args:
            samples: Samples of a training step.
            step: Training step of the run, which determines the temperature if it changes.
        """
        annotations = required_annotations(self._setup.algorithm)
        return await annotate(self._group, samples, annotations, self._setup.learner, step)

    async def logprobs(
        self, samples: Sequence[TrainingSample], *, step: int, token: int | None = None
    ) -> list[TrainingSample]:
        """Add the log-probabilities of the current weights to the sampled tokens, as `old_logprobs`.

        Args:
            samples: Samples.
            step: Training step whose temperature the log-probabilities have.
            token: Token whose log-probability is computed at the position of each sampled token. None for the sampled
                tokens.
        """
        return await annotate(self._group, samples, ["old_logprobs"], self._setup.learner, step, token)

    async def update(
        self,
        samples: Sequence[TrainingSample],
        *,
        step: int,
        recorded: dict[int, UpdateNumbers | None] | None = None,
    ) -> dict[str, float]:
        """Take all optimizer steps of a training step, the critic's first, and return their metrics.

        Metrics of the critic begin with `critic_`. The policy is not updated if no trajectory has an advantage and no
        other term of the loss depends on it; its metrics are then absent. `updates` is its number of optimizer steps.

        Args:
            samples: Samples with advantages and all annotations.
            step: Training step of the run, which determines the order of mini-batches.
            recorded: Indices of the samples whose tokens are recorded. Their values are replaced by the numbers of the
                last optimizer step with the sample; they remain if no optimizer step has it.

        Raises:
            DivergedError: The loss, the gradient or the updated policy is not finite.
            LearnerError: A rank failed.
            ValueError: The samples cannot be packed; see `pack_batch`.
        """
        return await take_steps(self._group, self._setup, samples, step, recorded)

    async def open_channel(self, receivers: Receivers) -> Rendezvous:
        """Listen for engine workers at rank 0, and return the rendezvous for the workers and `send_weights`.

        The connections persist: until the receivers change, further calls return the same rendezvous.

        Args:
            receivers: Engine workers. `Rendezvous` determines the rank that each takes its weights from.

        Raises:
            WeightTransferError: `learner.weight_transfer` cannot connect the ranks to these workers. Ends the learner.
        """
        group = self._group
        replies = await group.call_all(OpenChannel(receivers, group.host, group.machines))
        return cast(Rendezvous, replies[0])

    async def send_weights(self, rendezvous: Rendezvous, *, checksum: bool = False) -> TransferSummary:
        """Send the weights to the engine workers at `rendezvous`, each rank to its own workers.

        Run it concurrently with the engine's receiving call, for which it waits.

        Raises:
            WeightTransferError: A worker exited, timed out or found a wrong checksum. Ends the learner.
        """
        return TransferSummary.combine(await self._group.call_all(SendWeights(rendezvous, checksum)))

    async def weight_digest(self) -> str:
        """Return a digest of the policy's float32 weights, which does not depend on the number of ranks.

        It shows that two runs have equal weights. It is fast on every device, but not secure: other
        weights with the same digest can be constructed.
        """
        total = Counter[str]()
        for sums in await self._group.call_all(SumWeights()):
            total.update(sums)
        text = json.dumps({name: value % (1 << 64) for name, value in sorted(total.items())})
        return hashlib.sha256(text.encode()).hexdigest()

    async def begin_checkpoint(self, directory: Path, controller_state: dict[str, Any]) -> "asyncio.Task[None]":
        """Start writing a checkpoint of all ranks and `controller_state` (JSON), and return when the state is copied.

        The ranks write in the background of further commands. The returned task ends when `directory` is complete. If
        it raises, `directory` is unchanged:

            CheckpointError: The checkpoint could not be written, such as on a full disk. The learner stays usable.
            LearnerError: A rank exited.

        One checkpoint is written at a time: this waits for the previous one.
        """
        if self._checkpoint_write is not None:
            await asyncio.wait([self._checkpoint_write])
        self._checkpoint_write = await begin_checkpoint(self._group, self._setup, directory, controller_state)
        return self._checkpoint_write

    async def save_checkpoint(self, directory: Path, controller_state: dict[str, Any]) -> None:
        """Write a checkpoint and wait until it is complete. Raises the errors of `begin_checkpoint`'s task."""
        await (await self.begin_checkpoint(directory, controller_state))

    async def load_checkpoint(self, directory: Path, *, verified: bool = False) -> dict[str, Any]:
        """Restore the state of every rank and return the controller's state.

        The number of ranks and the ZeRO stage may differ from those of the learner that wrote the checkpoint.

        Args:
            directory: Directory of the checkpoint.
            verified: Whether its hashes have just been verified, as `latest_checkpoint` does.

        Raises:
            CheckpointError: The checkpoint is damaged, or of another model or precision.
        """
        return await load_ranks(self._group, self._setup, directory, verified=verified)

    async def export(self, directory: Path, stop_token_ids: Sequence[int] = ()) -> None:
        """Write the model to a directory that transformers and vLLM load, in the learner's precision.

        Args:
            directory: Directory to write.
            stop_token_ids: Tokens that end its responses, in addition to those that the initial model names.

        Raises:
            CheckpointError: The model could not be written.
        """
        await self._group.call_all(Export(directory, tuple(stop_token_ids)))

    async def offload(self, part: LearnerMemoryPart) -> None:
        """Free unused memory, or move the optimizer state or the parameters out of GPU memory until `onload`.

        Without the optimizer state, the learner can still send and export weights. Checkpoints can always be written.
        """
        await self._group.call_all(Offload(part))

    async def onload(self) -> None:
        """Move everything back to GPU memory, before updates, annotations, exports and loading a checkpoint."""
        await self._group.call_all(Onload())

    async def watch(self) -> NoReturn:
        """Wait until a rank exits, even between two commands, and raise LearnerError."""
        await self._group.watch()

    async def close(self) -> None:
        """End all ranks after their checkpoint is written. No process is left when this returns.

        Raises:
            LearnerError: A rank exited with an error.
        """
        if self._checkpoint_write is not None:
            await asyncio.wait([self._checkpoint_write])
        await self._group.shut_down()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        if error_type is None:
            await self.close()
        else:
            await self._group.kill()
            if self._checkpoint_write is not None:
                await asyncio.wait([self._checkpoint_write])  # which removes its partial directory
