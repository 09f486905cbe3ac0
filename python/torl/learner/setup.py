"""What a learner is started with, and how the controller and a rank talk. No torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from torl.config import AlgorithmConfig, CriticConfig, LearnerConfig, ModelConfig
from torl.errors import CheckpointError, DataError, LearnerError, TorlError, WeightTransferError

# Errors that keep their type on the way from a rank to the controller; anything else becomes a LearnerError.
_KNOWN_ERRORS: dict[str, type[TorlError]] = {
    error.__name__: error for error in (CheckpointError, DataError, LearnerError, WeightTransferError)
}

# What the ranks can add to training samples: fields of `TrainingSample`.
Annotation: TypeAlias = Literal["old_logprobs", "ref_logprobs", "values"]


@dataclass(frozen=True, slots=True)
class LearnerSetup:
    """Everything a rank needs to know; equal on all ranks."""

    model: ModelConfig
    learner: LearnerConfig
    algorithm: AlgorithmConfig
    critic: CriticConfig
    temperature: float  # of the rollouts: the logits are divided by it before logprobs are taken
    total_steps: int  # of the run: the learning-rate schedules end with the last
    seed: int
    threads: int  # compute threads of a rank on the CPU
    master: str  # where the ranks meet: an init method of torch.distributed


@dataclass(frozen=True, slots=True)
class Request:
    """One command for one rank. `arguments` are keywords of the command's method in `worker.py`."""

    command: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """A rank's answer: a value, or the error that ended the command."""

    value: Any = None
    error: str | None = None  # name of the error's class
    message: str = ""
    traceback: str = ""

    def raise_error(self, rank: int, log: Path | None) -> None:
        """Raise what the rank raised, if it did; an unexpected error comes with the rank's own traceback."""
        if self.error is None:
            return
        where = f" (log: {log})" if log is not None else ""
        if self.error in _KNOWN_ERRORS:
            raise _KNOWN_ERRORS[self.error](self.message)
        raise LearnerError(f"learner rank {rank} raised {self.error}: {self.message}{where}\n{self.traceback}")
