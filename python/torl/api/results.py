"""The results of `torl.sample`, `torl.train` and `torl.finetune`: sampled groups, runs and their metrics."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

from torl.base.errors import RecordError
from torl.base.trust import reading
from torl.base.types import ScoredGroup
from torl.run.config import FinetuneConfig, TrainConfig
from torl.run.display.notebook import charts_html, groups_html, metrics_html
from torl.run.display.outcome import describe_outcome
from torl.run.display.series import values_of
from torl.run.records import metric_names as names
from torl.run.records.files import CONFIG_FILE, evaluation_files, step_of_file, training_files
from torl.run.records.reading import read_metrics, read_trajectories
from torl.run.records.rows import TrajectoryRecord
from torl.run.records.run_directory import read_config

_CURVES = (names.ACCURACY, names.REWARD_MEAN, names.CODE_RATIO, names.RESPONSE_TOKENS)


class SampledGroups(list[ScoredGroup]):
    """Sampled groups, in the order of the problems."""

    def __repr__(self) -> str:
        trajectories = sum(len(group.members) for group in self)
        accuracy = sum(group.accuracy for group in self) / len(self) if self else 0.0
        return f"<{len(self)} groups, {trajectories} trajectories, accuracy {accuracy:.3f}>"

    def _repr_html_(self) -> str:
        return groups_html(self)


class History(Sequence[Mapping[str, float]]):
    """The metrics of a run: rows by position, columns by name.

    `run.metrics[-1]` is the latest row; `run.metrics["reward/accuracy"]` are the values of a metric over the rows that
    have it, and `run.metrics.curve("reward/accuracy")` its steps and values. Names are listed in `names`.
    """

    def __init__(self, rows: Sequence[Mapping[str, float]]) -> None:
        self._rows = rows

    @property
    def names(self) -> list[str]:
        """The names of all metrics, sorted."""
        return sorted({name for row in self._rows for name in row} - {"step", "time"})

    def curve(self, name: str) -> tuple[list[int], list[float]]:
        """Return the steps and values of a metric, over the rows that have it.

        Raises:
            KeyError: No row has the metric.
        """
        steps, values = values_of(self._rows, name)
        if not steps:
            raise KeyError(name)
        return steps, values

    @overload
    def __getitem__(self, key: int) -> Mapping[str, float]: ...
    @overload
    def __getitem__(self, key: slice) -> "History": ...
    @overload
    def __getitem__(self, key: str) -> list[float]: ...
    def __getitem__(self, key: int | slice | str) -> Any:
        if isinstance(key, str):
            return self.curve(key)[1]
        return History(self._rows[key]) if isinstance(key, slice) else self._rows[key]

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        last = self._rows[-1]["step"] if self._rows else "none"
        return f"<metrics: {len(self)} rows, {len(self.names)} names, last step {last}>"

    def _repr_html_(self) -> str:
        curves: dict[str, Any] = {name: values_of(self._rows, name) for name in _CURVES}
        return charts_html(curves) + (metrics_html(self._rows[-1]) if self._rows else "")


class Run:
    """A training run, finished or running, read from its directory.

        run = torl.Run("runs/demo")
        run.metrics["reward/accuracy"]
        run.trajectories(step=3)

    Metrics and trajectories may be read while the run continues.
    """

    def __init__(self, directory: str | Path, *, trust: bool = False) -> None:
        """Open the directory of a run.

        Args:
            directory: Directory of the run.
            trust: Whether to import, start and connect to what the run's files name, as for your own run.

        Raises:
            RecordError: The directory does not contain a run.
        """
        self.trust = trust
        """Whether everything that the files of the run name may be imported, started and connected to."""
        self.directory = Path(directory)
        """Directory of the run."""
        if not (self.directory / CONFIG_FILE).is_file():
            raise RecordError(f"{self.directory}: not the directory of a run ({CONFIG_FILE} is missing)")

    @property
    def config(self) -> TrainConfig | FinetuneConfig:
        """The resolved configuration.

        Raises:
            ConfigError: The configuration cannot be read.
        """
        with reading(trust=self.trust):
            return read_config(self.directory)

    @property
    def metrics(self) -> History:
        """The metrics written so far.

        Raises:
            RecordError: The metrics are missing or damaged.
        """
        return History(read_metrics(self.directory))

    @property
    def outcome(self) -> list[str]:
        """The outcome so far in a dozen lines: changes, costs, losses, and the next thing to do.

        Raises:
            RecordError: The metrics are missing or damaged.
        """
        return describe_outcome(self.directory)

    def trajectories(self, step: int | None = None, *, evaluation_set: str | None = None) -> Iterator[TrajectoryRecord]:
        """Yield the trajectories of training, or of an evaluation set.

        Args:
            step: Step. None for all steps.
            evaluation_set: Name of the evaluation set. None for training.

        Raises:
            RecordError: No trajectories are recorded for it, or a record is damaged.
        """
        sets = evaluation_files(self.directory)
        files = training_files(self.directory) if evaluation_set is None else sets.get(evaluation_set, [])
        files = [file for file in files if step is None or step_of_file(file) == step]
        if not files:
            of_set = "" if evaluation_set is None else f" of {evaluation_set!r} (sets: {', '.join(sets) or 'none'})"
            at_step = "" if step is None else f" of step {step}"
            raise RecordError(f"{self.directory}: no trajectories{at_step}{of_set} are recorded")
        return (record for file in files for record in read_trajectories(file))

    def __repr__(self) -> str:
        steps = len(training_files(self.directory))
        return f"<Run {self.directory}: {steps} steps recorded>"

    def _repr_html_(self) -> str:
        return self.metrics._repr_html_()


class FinishedRun(Run, Mapping[str, Any]):
    """A run that has ended, with its summary as a mapping (`run["accuracy_after"]`)."""

    def __init__(self, directory: Path, summary: Mapping[str, Any]) -> None:
        super().__init__(directory, trust=True)  # it was made here
        self.summary = summary
        """The content of `summary.json`."""

    def __getitem__(self, key: str) -> Any:
        return self.summary[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.summary)

    def __len__(self) -> int:
        return len(self.summary)
