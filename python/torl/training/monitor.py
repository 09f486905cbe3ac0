"""The interface of a check that watches a run: it is passed in by a higher layer, such as the doctor."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias

from torl.config import TrainConfig
from torl.errors import TorlError
from torl.records.rows import TrajectoryRecord
from torl.records.tokens import TokenKey
from torl.types import UpdateNumbers


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a check after a step.

    Attributes:
        metrics: Metrics that are added to the row of the step.
        warnings: Warnings for the console.
        error: Error that ends the run once a checkpoint is written. None lets it continue.
    """

    metrics: Mapping[str, float] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    error: TorlError | None = None


class Monitor(Protocol):
    """A check of each step of a run. It is called in a thread, one step after the other."""

    def observe(
        self,
        step: int,
        metrics: Mapping[str, float],
        records: Sequence[TrajectoryRecord],
        numbers: Mapping[TokenKey, UpdateNumbers],
    ) -> Verdict:
        """Add a step and return the verdict.

        Args:
            step: Number of the step, from 0.
            metrics: Metrics of the step.
            records: Records of its trajectories, in the order of their file.
            numbers: The learner's numbers of the recorded tokens.
        """
        ...


MonitorFactory: TypeAlias = Callable[[TrainConfig, Path, int], Monitor | None]
"""Return the monitor of a run with this configuration, directory and first step; None for a run without one."""
