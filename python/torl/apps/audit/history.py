"""The history of a run according to its directory: configurations, steps, evaluations, and the records that exist."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torl.apps.audit.checks import Check
from torl.config import LearningConfig
from torl.errors import RecordError
from torl.learner.checkpoint.directory import checkpoint_steps
from torl.records import metric_names as names
from torl.records.files import METRICS_FILE, SUMMARY_FILE, step_of_file, training_files
from torl.records.reading import read_metrics, read_trajectories
from torl.records.rows import TrajectoryRecord
from torl.records.run_directory import read_configs

_DROPPED = (
    names.SELECTION_FAILED,
    names.SELECTION_ZERO_VARIANCE,
    names.SELECTION_OUT_OF_RANGE,
    names.SELECTION_UNDECIDED,
    names.SELECTION_SMALL,
    names.SELECTION_SURPLUS,
)


@dataclass(frozen=True, slots=True)
class RunHistory:
    """The history of a run.

    Attributes:
        directory: Run directory.
        configs: Configurations of its starts, each with the first step that it applies to.
        steps: Number of steps that the run played, according to any of its files.
        finished: Whether the run wrote its summary, which is its last file.
        step_rows: Rows of metrics by step.
        evaluation_rows: Rows of metrics of evaluations, by the number of steps before.
    """

    directory: Path
    configs: Sequence[tuple[int, LearningConfig]]
    steps: int
    finished: bool
    step_rows: Mapping[int, Mapping[str, Any]]
    evaluation_rows: Mapping[int, Mapping[str, Any]]

    @classmethod
    def read(cls, directory: Path, metrics: Check) -> "RunHistory":
        """Read the configurations and metrics of a run. Damaged metrics are counted in `metrics`.

        Raises:
            ConfigError: A configuration cannot be read.
        """
        configs = read_configs(directory)
        # Files before rows: a run in progress writes the file of a step before its row.
        played = [step + 1 for path in training_files(directory) if (step := step_of_file(path)) is not None]
        checkpoints = checkpoint_steps(directory)
        finished = (directory / SUMMARY_FILE).exists()
        step_rows: dict[int, Mapping[str, Any]] = {}
        evaluation_rows: dict[int, Mapping[str, Any]] = {}
        for row in _rows(directory, metrics):
            step = row.get("step")
            if not isinstance(step, int) or isinstance(step, bool):
                metrics.add(False, f"{METRICS_FILE}: expected a step in each row, found {step!r}")
                continue
            for name, found in ((names.TIME_STEP, step_rows), (names.TIME_EVALUATION, evaluation_rows)):
                if name in row:
                    if step in found:
                        metrics.add(False, f"{METRICS_FILE}: expected one row of step {step} with {name}, found two")
                    found[step] = row
        steps = max([0, *played, *checkpoints, *(step + 1 for step in step_rows)])
        if finished:
            steps = max(steps, configs[-1][1].total_steps)
        return cls(directory, configs, steps, finished, step_rows, evaluation_rows)

    def config_at(self, step: int) -> LearningConfig:
        """Return the configuration that a step was played with, with the values of its schedules."""
        return self.start_config_at(step).at_step(step)

    def start_config_at(self, step: int) -> LearningConfig:
        """Return the configuration of the start that played a step."""
        return next((config for first, config in reversed(self.configs) if first <= step), self.configs[0][1])

    def evaluations(self) -> list[int]:
        """Return the number of steps before each evaluation that has records or must have them."""
        return [step for step in range(self.steps + 1) if step in self.evaluation_rows or self._must_evaluate(step)]

    def _must_evaluate(self, step: int) -> bool:
        config = self.config_at(step)
        interval = config.evaluation.every_steps
        due = step in (0, config.total_steps) or (interval > 0 and step % interval == 0)
        return due and (step < self.steps or self.finished)

    def may_lack_row(self, step: int) -> bool:
        """Whether the run may have stopped between writing the trajectories and the metrics of a step."""
        return step == self.steps - 1 and not self.finished


def _rows(directory: Path, metrics: Check) -> list[dict[str, Any]]:
    try:
        return read_metrics(directory)
    except RecordError as error:
        metrics.add(False, str(error))
        return []


def read_file(path: Path, files: Check, expected: str) -> list[TrajectoryRecord] | None:
    """Read the trajectories of a file, or count it as a mismatch and return None.

    Args:
        path: Path of the file.
        files: Check that counts files.
        expected: Number of trajectories that the file should contain, as text.
    """
    if not path.exists():
        files.add(False, f"{path.name}: expected {expected}, found no file")
        return None
    try:
        return list(read_trajectories(path))
    except RecordError as error:
        files.add(False, f"expected {expected}, found {error}")
        return None


def groups_of_row(row: Mapping[str, Any]) -> int:
    """Return the number of groups of a step according to its metrics."""
    filtered = filter(names.is_dropped_groups, row)
    return int(sum(row.get(name, 0) for name in (names.TRAINED_GROUPS, *_DROPPED, *filtered)))
