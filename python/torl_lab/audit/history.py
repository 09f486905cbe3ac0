"""The history of a run according to its directory: configurations, steps, evaluations, and the records that exist."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torl.base.errors import RecordError
from torl.learner.checkpoint.directory import MANIFEST, checkpoint_path, checkpoint_steps
from torl.run.config import EvaluationConfig, FinetuneConfig, LearningConfig, TrainConfig
from torl.run.records.files import (
    CONFIG_FILE,
    METRICS_FILE,
    SUMMARY_FILE,
    is_locked,
    step_of_file,
    token_file,
    token_files,
    training_files,
    trajectory_file,
    trajectory_files,
)
from torl.run.records.reading import read_trajectory_rows
from torl.run.records.receipt import CONFIGS, earlier_configs, file_entry, read_receipt
from torl.run.records.rows import TrajectoryRecord, encode_trajectory
from torl.run.records.run_directory import earlier_file, read_configs
from torl_lab.audit.checks import Check
from torl_lab.audit.metric_rows import MetricRows


@dataclass(frozen=True, slots=True)
class RunHistory:
    """The history of a run.

    Attributes:
        directory: Run directory.
        configs: Configurations of its starts, each with the first step that it applies to.
        steps: Number of steps that the run played, according to any of its files.
        finished: Whether the run wrote its summary, which is its last file.
        rows: Rows of its metrics.
        receipt: Lines of its receipt. Empty if it cannot be read, which is a mismatch of another check. Without a last
            start that has not replaced the configuration yet.
        files: Files of trajectories, of the learner's numbers of tokens, and of configurations.
        checkpoints: Steps of the checkpoints.
        is_written: Whether a process is writing the run.
    """

    directory: Path
    configs: Sequence[tuple[int, LearningConfig]]
    steps: int
    finished: bool
    rows: MetricRows
    receipt: Sequence[Mapping[str, Any]] = ()
    files: Sequence[Path] = ()
    checkpoints: Sequence[int] = ()
    is_written: bool = False

    @classmethod
    def read(cls, directory: Path, metrics: Check) -> "RunHistory":
        """Read the configurations and metrics of a run. Damaged metrics are counted in `metrics`.

        A start removes the records from its step on, and the summary, after it has written its line of the receipt.
        Until the next line, they are left out.

        Raises:
            ConfigError: A configuration cannot be read.
        """
        configs = read_configs(directory)
        is_written = is_locked(directory)
        receipt = receipt_lines(directory)
        settings = sorted(directory.glob(CONFIGS))
        begins = receipt[-1]["step"] if receipt and receipt[-1]["event"] == "start" else sys.maxsize
        if begins < sys.maxsize and receipt[-1].get("replaces") == file_entry(directory / CONFIG_FILE):
            receipt = receipt[:-1]
            if configs[-2:-1] == configs[-1:]:  # copied, and not replaced yet
                configs.pop()
                settings.remove(earlier_file(directory, len(configs)))
        # In the order in which a run in progress writes them: the files of a step before its row.
        finished = os.path.lexists(directory / SUMMARY_FILE) and begins == sys.maxsize
        files = settings + [path for path in trajectory_files(directory) if (step_of_file(path) or 0) < begins]
        files += [path for step, path in token_files(directory).items() if step < begins]
        played = [step + 1 for path in training_files(directory) if (step := step_of_file(path)) is not None]
        supervised = isinstance(configs[-1][1], FinetuneConfig)
        rows = MetricRows.read(directory, begins, metrics, supervised=supervised)
        checkpoints = checkpoint_steps(directory)
        steps = min(begins, max([0, *played, *checkpoints, *(step + 1 for step in rows.steps)]))
        if finished:
            steps = max(steps, configs[-1][1].total_steps)
        rows.check_order(metrics, configs[-1][1].total_steps)
        for step in sorted(rows.evaluations):
            if step > steps:
                metrics.add(False, f"{METRICS_FILE}: expected no evaluation after step {steps}, found step {step}")
        return cls(directory, configs, steps, finished, rows, receipt, files, checkpoints, is_written)

    def config_at(self, step: int) -> LearningConfig:
        """Return the configuration that a step was played with, with the values of its schedules."""
        return self.start_config_at(step).at_step(step)

    def start_config_at(self, step: int) -> LearningConfig:
        """Return the configuration of the start that played a step."""
        return next((config for first, config in reversed(self.configs) if first <= step), self.configs[0][1])

    def source_of(self, config: LearningConfig, name: str) -> Mapping[str, Any] | None:
        """Return the hash of a source's rows that the last start with a configuration had read (`SourceDigest.entry`).

        None if the start was with an earlier version, which did not record it.
        """
        place = next(number for number, (_, each) in enumerate(self.configs) if each is config)
        starts = [line for line in self.receipt if line["event"] == "start" and earlier_configs(line) <= place]
        sources = starts[-1].get("sources") if starts else None
        entry = sources.get(name) if isinstance(sources, dict) else None
        return entry if isinstance(entry, dict) else None

    def evaluations(self) -> list[int]:
        """Return the number of steps before each evaluation that has records or must have them."""
        return [step for step in range(self.steps + 1) if step in self.rows.evaluations or self._must_evaluate(step)]

    def is_evaluated(self, step: int) -> bool:
        """Whether the configuration asks for an evaluation after a number of steps."""
        config = self.config_at(step)
        interval = config.evaluation.every_steps
        at_interval = config.evaluation.before_training if step == 0 else interval > 0 and step % interval == 0
        return at_interval or step == config.total_steps

    def _must_evaluate(self, step: int) -> bool:
        return self.is_evaluated(step) and (step < self.steps or self.finished)

    def check_files(self, files: Check) -> None:
        """Check that the steps have a configuration, and that each trajectory file belongs to a step or an evaluation.

        A note describes a run that has not ended.
        """
        first, steps = self.configs[0][0], self.configs[-1][1].total_steps
        if first > 0:
            files.add(False, f"expected a configuration of step 0, found configurations from step {first} on")
        if self.steps > steps:
            files.add(False, f"{CONFIG_FILE}: expected at most {steps} steps, found {self.steps}")
        if not self.finished:
            progress = ", and is being written" if self.is_written else ""
            files.add_note(f"the run has not ended: {self.steps} of {steps} steps{progress}")
        played = [step for step in range(self.steps) if isinstance(self.start_config_at(step), TrainConfig)]
        known = {trajectory_file(self.directory, step) for step in played}
        for step in [*self.evaluations(), *([] if self.finished else [self.steps])]:
            config = self.config_at(step)
            labels = (label for name in config.data.evaluation for label in evaluation_plays(name, config.evaluation))
            known |= {trajectory_file(self.directory, step, label) for label in labels}
        starts = range(1, len(self.configs))
        known |= {self.directory / name for name in (CONFIG_FILE, *(f"config.{each}.toml" for each in starts))}
        known |= {token_file(self.directory, step) for step in played}
        for path in self.files:
            if path not in known:
                files.add(False, f"{path.relative_to(self.directory)}: expected no such file")

    def has_removed(self, step: int) -> bool:
        """Whether the run has removed a checkpoint since the history was read, because it has written a later one."""
        later = max(checkpoint_steps(self.directory), default=0) > max(self.checkpoints, default=0)
        return later and not (checkpoint_path(self.directory, step) / MANIFEST).exists()

    def may_lack_numbers(self, step: int) -> bool:
        """Whether the run has stopped before it wrote the learner's numbers of the tokens of a step."""
        return not token_file(self.directory, step).exists() and self.may_lack_row(step)

    def may_lack_row(self, step: int) -> bool:
        """Whether the run may have stopped between writing the trajectories and the metrics of a step."""
        return step == self.steps - 1 and not self.finished


def evaluation_plays(name: str, settings: EvaluationConfig) -> dict[str, tuple[str, int]]:
    """Return the kind and the number of trajectories per problem of each file of an evaluation, by label."""
    plays = {name: ("sampled", settings.samples_per_problem)} if settings.samples_per_problem else {}
    return plays | ({f"{name}.greedy" if plays else name: ("greedy", 1)} if settings.greedy else {})


def receipt_lines(directory: Path) -> list[dict[str, Any]]:
    """Return the lines of a receipt; an empty list if it cannot be read, which is a mismatch of its check."""
    try:
        return read_receipt(directory)
    except RecordError:
        return []


def read_file(path: Path, files: Check, expected: str) -> list[TrajectoryRecord] | None:
    """Read the trajectories of a file, or count it as a mismatch and return None.

    A row that differs from the row that its record would be written as is a mismatch, too: a value that follows from
    others, such as the sampled text, has changed, or a key is unknown.
    """
    if not os.path.lexists(path):
        files.add(False, f"{path.name}: expected {expected}, found no file")
        return None
    try:
        records = []
        for number, (row, record) in enumerate(read_trajectory_rows(path), start=1):
            if mismatch := _row_mismatch(row, encode_trajectory(record)):
                files.add(False, f"{path.name}, line {number}: {mismatch}")
            records.append(record)
        return records
    except RecordError as error:
        files.add(False, f"expected {expected}, found {error}")
        return None


def _row_mismatch(row: Mapping[str, Any], encoded: Mapping[str, Any]) -> str | None:
    for key in {**encoded, **row}:
        if (key in row, row.get(key)) != (key in encoded, encoded.get(key)):
            expected, found = (f"{each[key]!r:.60}" if key in each else "no value" for each in (encoded, row))
            return f"{key}: expected {expected}, found {found}"
    return None
