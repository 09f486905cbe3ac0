"""The setup of a learner, and the messages between the controller and its ranks. No torch."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

from torl.base.errors import (
    CheckpointError,
    ComponentError,
    DataError,
    DivergedError,
    LearnerError,
    TorlError,
    WeightTransferError,
)
from torl.base.types import Float32Array
from torl.components.hub import resolve_model
from torl.components.weights.rendezvous import Receivers, Rendezvous
from torl.learner.rows import PackedRow
from torl.run.config import AlgorithmConfig, CriticConfig, LearnerConfig, LearningConfig, ModelConfig
from torl.run.config.schedule import with_value

# Errors that keep their type on the way from a rank to the controller. Any other becomes a LearnerError.
_KNOWN_ERRORS: dict[str, type[TorlError]] = {
    error.__name__: error
    for error in (CheckpointError, ComponentError, DataError, DivergedError, LearnerError, WeightTransferError)
}

Annotation: TypeAlias = Literal["old_logprobs", "ref_logprobs", "entropies", "collision_probs", "values"]
"""A field of `TrainingSample` that the ranks compute."""

LearnerMemoryPart: TypeAlias = Literal["cache", "optimizer", "parameters"]
"""A part of a rank's GPU memory that is freed as a whole: "cache" is what torch has allocated and nothing uses, only an
optimizer step needs "optimizer", and every forward pass needs "parameters". The latter two move to CPU memory."""


@dataclass(frozen=True, slots=True)
class LearnerSetup:
    """The model and the settings of a learner."""

    model: ModelConfig
    learner: LearnerConfig
    algorithm: AlgorithmConfig
    critic: CriticConfig
    temperature: float
    """Temperature of the rollouts. Logits are divided by it before log-probabilities are computed."""
    total_steps: int
    """Training steps of the run, after the last of which learning-rate schedules end."""
    seed: int
    later: tuple[tuple[int, AlgorithmConfig, float], ...] = ()
    """Algorithm and temperature from later steps on, if they change: (first step, algorithm, temperature)."""

    @property
    def policy_steps(self) -> int:
        """Training steps in which the policy is updated."""
        return self.total_steps - (self.critic.pretrain_steps if self.algorithm.needs_critic else 0)

    def at_step(self, step: int) -> Self:
        """Return the setup of a training step."""
        for first, algorithm, temperature in reversed(self.later):
            if first <= step:
                return replace(self, algorithm=algorithm, temperature=temperature)
        return self

    @classmethod
    def from_config(cls, config: LearningConfig) -> Self:
        """Create the setup of a run. Models on the Hub are resolved to local directories."""
        model = config.model.model_copy(update={"path": str(resolve_model(config.model.path))})
        critic, path = config.critic, config.algorithm.kl.path
        if path is not None:
            config = with_value(config, ("algorithm", "kl", "reference"), str(resolve_model(path)))
        if critic.path is not None:
            critic = critic.model_copy(update={"path": str(resolve_model(critic.path))})
        stages = [(step, config.at_step(step)) for step in (0, *config.schedule_steps) if config.schedule_steps]
        return cls(
            model=model,
            learner=config.learner,
            algorithm=config.algorithm,
            critic=critic,
            temperature=config.policy_temperature,
            total_steps=config.total_steps,
            seed=config.run.seed,
            later=tuple((step, each.algorithm, each.policy_temperature) for step, each in stages),
        )


@dataclass(frozen=True, slots=True)
class RankSetup:
    """The first message to a rank, the same for all ranks."""

    learner: LearnerSetup
    threads: int
    """Compute threads of a rank on the CPU."""
    init_method: str
    """Init method of torch.distributed, at which the ranks meet."""
    on_gpu: bool = False
    """Whether each rank has been assigned a GPU."""


@dataclass(frozen=True, slots=True)
class UpdatePolicy:
    """Take one optimizer step of the policy. The value is a `PolicyUpdate`."""

    rows: tuple[PackedRow, ...]
    sampled_tokens: int
    """Number of sampled tokens in the rows of all ranks."""
    step: int = 0
    """Training step of the run."""
    recorded: frozenset[int] = frozenset()
    """Indices in the batch of the samples whose tokens are recorded."""


@dataclass(frozen=True, slots=True)
class PolicyUpdate:
    """The result of `UpdatePolicy`."""

    metrics: dict[str, float]
    """Metrics, equal on all ranks."""
    tokens: dict[int, dict[str, Float32Array]]
    """Arrays of the recorded samples in the rank's rows, as in `torl.base.types.UpdateNumbers`."""


@dataclass(frozen=True, slots=True)
class UpdateCritic:
    """Take one optimizer step of the critic. The value is a `dict[str, float]` of metrics, equal on all ranks."""

    rows: tuple[PackedRow, ...]
    sampled_tokens: int
    step: int = 0


@dataclass(frozen=True, slots=True)
class RequireFinite:
    """Raise `DivergedError` unless an updated model and its outputs for a row are finite."""

    row: PackedRow
    model: Literal["policy", "critic"]
    step: int
    """Training step of the run, for the message."""


@dataclass(frozen=True, slots=True)
class Annotate:
    """Compute annotations. The value is a `dict[Annotation, list[Float32Array]]`: an array (K,) for each row."""

    rows: tuple[PackedRow, ...]
    annotations: tuple[Annotation, ...]
    step: int = 0
    """Training step of the run."""


@dataclass(frozen=True, slots=True)
class OpenChannel:
    """Listen for engine workers. The value is a `Rendezvous` on rank 0, None on other ranks."""

    receivers: Receivers
    host: str
    """Address of rank 0."""
    machines: int
    """Number of machines that learner and engine run on."""


@dataclass(frozen=True, slots=True)
class SendWeights:
    """Send the weights to the engine workers. The value is a `TransferSummary`, or None without workers."""

    rendezvous: Rendezvous
    checksum: bool


@dataclass(frozen=True, slots=True)
class SumWeights:
    """Sum the rank's part of the policy's master weights. The value is a `dict[str, int]` by parameter."""


@dataclass(frozen=True, slots=True)
class SaveCheckpoint:
    """Copy the rank's state and start writing the copy. `ShardWritten` follows later."""

    directory: Path
    """An existing directory, shared by all ranks."""


@dataclass(frozen=True, slots=True)
class LoadCheckpoint:
    """Restore the rank's state."""

    directory: Path
    """Directory that ranks have written to, as in `SaveCheckpoint`."""


@dataclass(frozen=True, slots=True)
class Export:
    """Write the model in Hugging Face's format, with the tokens that its responses end with."""

    directory: Path
    stop_token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Offload:
    """Move a part of the state to CPU memory."""

    part: LearnerMemoryPart


@dataclass(frozen=True, slots=True)
class Onload:
    """Move all offloaded parts back."""


@dataclass(frozen=True, slots=True)
class ShutDown:
    """Leave the process group and exit."""


RankRequest: TypeAlias = (
    UpdatePolicy
    | UpdateCritic
    | RequireFinite
    | Annotate
    | OpenChannel
    | SendWeights
    | SumWeights
    | SaveCheckpoint
    | LoadCheckpoint
    | Export
    | Offload
    | Onload
    | ShutDown
)
"""A command to a rank. All ranks execute a command together, each with its own request of the same type."""


def request_name(request: RankRequest | RankSetup) -> str:
    """Return the name of a command in logs and errors, such as "update_policy"."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(request).__name__).lower()


@dataclass(frozen=True, slots=True)
class RowComputed:
    """A rank's report of progress: it has computed a row. Sent between replies."""


@dataclass(frozen=True, slots=True)
class ShardWritten:
    """A rank's report that its part of a checkpoint is written, sent between replies."""

    files: dict[str, dict[str, Any]]
    """Entry of each file in the manifest."""
    error: str | None = None
    """Reason for a failed write."""


@dataclass(frozen=True, slots=True)
class RankReply:
    """A rank's reply to a request: a value, or the error that ended the command."""

    value: Any = None
    error: str | None = None
    """Name of the error's class."""
    message: str = ""
    traceback: str = ""

    def raise_error(self, rank: int, log: Path) -> None:
        """Raise the rank's error, if any. An unexpected error includes the traceback of the rank."""
        if self.error is None:
            return
        if self.error in _KNOWN_ERRORS:
            raise _KNOWN_ERRORS[self.error](self.message)
        raise LearnerError(f"learner rank {rank} raised {self.error}: {self.message} (log: {log})\n{self.traceback}")
