"""What a learner is started with, and how the controller and a rank talk. No torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

from torl.config import AlgorithmConfig, CriticConfig, LearnerConfig, ModelConfig, TrainConfig
from torl.errors import CheckpointError, ComponentError, DataError, LearnerError, TorlError, WeightTransferError
from torl.hub import resolve_model

# Errors that keep their type on the way from a rank to the controller; anything else becomes a LearnerError.
_KNOWN_ERRORS: dict[str, type[TorlError]] = {
    error.__name__: error for error in (CheckpointError, ComponentError, DataError, LearnerError, WeightTransferError)
}

# What the ranks can add to training samples: fields of `TrainingSample`.
Annotation: TypeAlias = Literal["old_logprobs", "ref_logprobs", "values"]

# What a rank moves to CPU memory at a time: all that only an optimizer step takes, or what a forward takes.
LearnerMemoryPart: TypeAlias = Literal["optimizer", "parameters"]


@dataclass(frozen=True, slots=True)
class LearnerSetup:
    """What a learner learns, and how."""

    model: ModelConfig
    learner: LearnerConfig
    algorithm: AlgorithmConfig
    critic: CriticConfig
    temperature: float  # of the rollouts: the logits are divided by it before logprobs are taken
    total_steps: int  # of the run: the learning-rate schedules end with the last
    seed: int

    @classmethod
    def from_config(cls, config: TrainConfig) -> Self:
        """The learner of a run; paths that begin with `torl:` become those of files."""
        model = config.model.model_copy(update={"path": str(resolve_model(config.model.path))})
        critic = config.critic
        if critic.path is not None:
            critic = critic.model_copy(update={"path": str(resolve_model(critic.path))})
        return cls(
            model=model,
            learner=config.learner,
            algorithm=config.algorithm,
            critic=critic,
            temperature=config.rollout.temperature,
            total_steps=config.run.steps,
            seed=config.run.seed,
        )


@dataclass(frozen=True, slots=True)
class RankSetup:
    """Everything a rank needs to know; equal on all ranks, and the first message to each."""

    learner: LearnerSetup
    threads: int  # compute threads of a rank on the CPU
    master: str  # where the ranks meet: an init method of torch.distributed


@dataclass(frozen=True, slots=True)
class ChannelRequest:
    """The channels that are wanted for sending weights: to whom, and where they are."""

    receivers: int  # engine workers
    host: str  # where rank 0 listens
    colocated: bool  # whether learner and engine share their GPUs
    one_machine: bool
    fresh: bool  # whether the receivers are not those of the last transfer
    nodes: tuple[int, ...]  # that of each receiver in a cluster; empty if that is unknown


@dataclass(frozen=True, slots=True)
class RankRequest:
    """One command for one rank. `arguments` are keywords of the command's method in `worker.py`."""

    command: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ShardWritten:
    """What a rank says unasked when it has written its part of a checkpoint."""

    files: dict[str, dict[str, Any]]  # what the manifest says of each
    error: str | None = None  # why it could not


@dataclass(frozen=True, slots=True)
class RankReply:
    """A rank's answer: a value, or the error that ended the command."""

    value: Any = None
    error: str | None = None  # name of the error's class
    message: str = ""
    traceback: str = ""

    def raise_error(self, rank: int, log: Path) -> None:
        """Raise what the rank raised, if it did; an unexpected error comes with the rank's own traceback."""
        if self.error is None:
            return
        if self.error in _KNOWN_ERRORS:
            raise _KNOWN_ERRORS[self.error](self.message)
        raise LearnerError(f"learner rank {rank} raised {self.error}: {self.message} (log: {log})\n{self.traceback}")
