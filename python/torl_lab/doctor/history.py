"""The history of a run as the doctor sees it: metrics of all steps, facts of the first and the latest ones, trends."""

import math
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import numpy as np

from torl.base.errors import TorlError
from torl.base.types import UpdateNumbers
from torl.run.config import TrainConfig
from torl.run.records import metric_names as names
from torl.run.records.files import evaluation_files, trajectory_file
from torl.run.records.reading import read_metrics, read_rows, read_trajectories
from torl.run.records.rows import TrajectoryRecord
from torl.run.records.thresholds import COMPARED_STEPS
from torl.run.records.tokens import TokenKey, read_token_numbers
from torl_lab.doctor.facts import Member, members_of
from torl_lab.doctor.token_facts import TokenFacts, token_facts

RECENT: Final = COMPARED_STEPS
"""Number of steps whose mean is compared with a threshold, and of first steps that it is compared with."""
MIN_RECENT: Final = 3
"""Minimum number of these steps."""
MIN_RESPONSES: Final = 32
"""Minimum number of responses whose facts are compared without regard to steps."""
KEPT: Final = 20
"""Number of latest steps whose episodes are kept, in addition to the first `RECENT`."""

_SIGNIFICANT: Final = 1.645  # standard deviations, one-sided 5 %


class MissingInputError(TorlError):
    """The records lack an input of a check. The message is the reason why the check is skipped."""


@dataclass(frozen=True, slots=True)
class Step:
    """A training step.

    Attributes:
        number: Number of the step, from 0.
        metrics: Row of metrics. A value that is not finite is None.
        members: Facts of its episodes. Empty for steps whose episodes are not kept.
        tokens: Facts of the recorded tokens, if any.
        groups: Members of each group.
    """

    number: int
    metrics: Mapping[str, Any]
    members: tuple[Member, ...] = ()
    tokens: TokenFacts | None = None
    groups: Sequence[list[Member]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        groups: defaultdict[str, list[Member]] = defaultdict(list)
        for member in self.members:
            groups[member.group].append(member)
        object.__setattr__(self, "groups", tuple(groups.values()))


@dataclass(slots=True)
class StepHistory:
    """The training steps and evaluations of a run, to which each step adds.

    What the run lacks, too few steps or no value of a metric, is a `MissingInputError`.

    Attributes:
        config: Configuration of the latest start.
        steps: Training steps in their order.
        evaluations: Rows of metrics of evaluations.
        evaluated: Questions of the evaluation sets. None before the first evaluation.
    """

    config: TrainConfig
    steps: list[Step] = field(default_factory=list)
    evaluations: list[Mapping[str, Any]] = field(default_factory=list)
    evaluated: frozenset[str] | None = None
    _learning: tuple[int, bool] | None = field(default=None, init=False, repr=False)  # number of steps, `is_learning`

    def add(
        self,
        step: int,
        metrics: Mapping[str, Any],
        records: Sequence[TrajectoryRecord],
        numbers: Mapping[TokenKey, UpdateNumbers],
    ) -> None:
        """Add a step, and drop the facts of episodes that are neither among the first nor the latest steps."""
        finite = {name: None if value is None or not math.isfinite(value) else value for name, value in metrics.items()}
        self.steps.append(Step(step, finite, members_of(step, records), token_facts(step, records, numbers)))
        dropped = len(self.steps) - 1 - KEPT
        if dropped >= RECENT:
            old = self.steps[dropped]
            self.steps[dropped] = Step(old.number, old.metrics, (), old.tokens)

    def add_row(self, directory: Path, row: Mapping[str, Any], *, with_episodes: bool = True) -> None:
        """Add a recorded step by its row of metrics. Its episodes are read from the run's directory.

        Raises:
            RecordError: The records are damaged.
        """
        step, metrics = row["step"], {name: value for name, value in row.items() if name not in ("step", "time")}
        path = trajectory_file(directory, step)
        has_episodes = with_episodes and os.path.lexists(path)
        records = list(read_trajectories(path)) if has_episodes else []
        self.add(step, metrics, records, read_token_numbers(directory, step) if has_episodes else {})

    @property
    def first(self) -> list[Step]:
        """The first 5 steps, of at least 10, so that they do not overlap with the latest."""
        if len(self.steps) < 2 * RECENT:
            raise MissingInputError(f"{len(self.steps)} of {2 * RECENT} steps")
        return self.steps[:RECENT]

    @property
    def recent(self) -> list[Step]:
        """The latest steps: 5, or at least 3."""
        if len(self.steps) < MIN_RECENT:
            raise MissingInputError(f"{len(self.steps)} of {MIN_RECENT} steps")
        return self.steps[-RECENT:]

    def before(self, name: str) -> float:
        """Return the mean of a metric over the first 5 steps."""
        return fmean(_values(self.first, name))

    def now(self, name: str) -> float:
        """Return the mean of a metric over the latest steps, at most 5."""
        return fmean(_values(self.recent, name))

    def series(self, name: str, count: int | None = None) -> list[float]:
        """Return the finite values of a metric over the latest `count` steps, or all."""
        return _values(self.steps if count is None else self.steps[-count:], name)

    @property
    def is_learning(self) -> bool:
        """Whether the reward still rises: over the run's second half, or over its latest 10 steps."""
        if self._learning is None or self._learning[0] != len(self.steps):
            values = self.series(names.REWARD_MEAN)
            rises = is_rising(values[len(values) // 2 :]) or is_rising(values[-2 * RECENT :])
            self._learning = len(self.steps), rises
        return self._learning[1]

    @property
    def members(self) -> list[Member]:
        """Facts of the episodes of the latest steps, at most 5, with at least 32 episodes."""
        members = members_in(self.steps[-RECENT:])
        if len(members) < MIN_RESPONSES:
            raise MissingInputError(f"{len(members)} of {MIN_RESPONSES} responses")
        return members


def members_in(steps: Iterable[Step]) -> list[Member]:
    """Return the facts of the episodes of steps.

    Raises:
        MissingInputError: The steps have no records of episodes.
    """
    members = [member for step in steps for member in step.members]
    if not members:
        raise MissingInputError("no trajectories of the steps")
    return members


def read_history(directory: Path, config: TrainConfig, before: int | None = None) -> StepHistory:
    """Read the history of a run, without the steps from `before` on.

    Raises:
        RecordError: The records are missing or damaged.
    """
    rows = [row for row in read_metrics(directory) if before is None or row["step"] < before]
    steps, evaluations = ([row for row in rows if name in row] for name in (names.TIME_STEP, names.TIME_EVALUATION))
    kept = {row["step"] for row in [*steps[:RECENT], *steps[-KEPT:]]}
    history = StepHistory(config, evaluations=[*evaluations], evaluated=read_evaluated_questions(directory))
    for row in steps:
        history.add_row(directory, row, with_episodes=row["step"] in kept)
    return history


def read_evaluated_questions(directory: Path) -> frozenset[str]:
    """Return the questions of the evaluation sets, from their first evaluation."""
    every = evaluation_files(directory).values()
    return frozenset(str(row.get("question", "")) for files in every for row in read_rows(files[0]))


def _values(steps: Iterable[Step], name: str) -> list[float]:
    values = [value for step in steps if (value := step.metrics.get(name)) is not None]
    if not values:
        raise MissingInputError(f"no step has {name}")
    return values


def mann_kendall(values: Sequence[float]) -> float:
    """Return the standard score of Mann and Kendall's trend test (Mann 1945), with its correction for ties.

    Above 0 for rising values. 0 for fewer than four values, or constant ones.
    """
    count = len(values)
    if count < 4:
        return 0.0
    array = np.asarray(values, np.float64)
    score = sum(int(np.sign(array[index + 1 :] - array[index]).sum()) for index in range(count - 1))
    ties = np.unique(array, return_counts=True)[1]
    tied = int((ties * (ties - 1) * (2 * ties + 5)).sum())
    variance = (count * (count - 1) * (2 * count + 5) - tied) / 18
    if variance <= 0:
        return 0.0
    return (score - math.copysign(1, score)) / math.sqrt(variance) if score else 0.0


def is_rising(values: Sequence[float]) -> bool:
    """Whether values rise, at a one-sided significance of 5 %."""
    return mann_kendall(values) > _SIGNIFICANT
