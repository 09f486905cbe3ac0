"""Monitors watch a run while it trains: the doctor and the page of the run do, and classes of other packages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torl.base.errors import ConfigError, TorlError
from torl.base.guard import Guarded, InvalidResultError, guarded
from torl.base.plugins import MONITORS, load_class, plugins
from torl.base.types import UpdateNumbers
from torl.run.config import LearningConfig, TrainConfig
from torl.run.records.rows import TrajectoryRecord
from torl.run.records.tokens import TokenKey
from torl.training.checkpoints import require_evaluation_metric

_HEALTH = "health"


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


def _require_verdict(verdict: object, *_: object, **__: object) -> None:
    if not isinstance(verdict, Verdict):
        raise InvalidResultError(f"expected a Verdict, got {verdict!r}")


class Monitor(Guarded, kind="monitor"):
    """Watches a run. Its methods are called in a thread, one after the other; each does nothing unless overridden.

    A package adds one by the entry point "torl.monitors". It watches every run, unless `wants` returns False.
    """

    def __init__(self, config: LearningConfig, directory: Path, first_step: int) -> None:
        """Begin to watch a run.

        Args:
            config: Configuration of the run.
            directory: Directory of the run, with the records before `first_step`.
            first_step: Next step; above 0 in a resumed run.
        """

    @classmethod
    def wants(cls, config: LearningConfig) -> bool:
        """Whether to watch a run with this configuration.

        Raises:
            ConfigError: A setting for the monitor is invalid.
        """
        return True

    @guarded(_require_verdict)
    def observe(
        self,
        step: int,
        metrics: Mapping[str, float],
        records: Sequence[TrajectoryRecord],
        numbers: Mapping[TokenKey, UpdateNumbers],
    ) -> Verdict:
        """Add a step of training and return the verdict. Steps of fine-tuning are not passed.

        Args:
            step: Number of the step, from 0.
            metrics: Metrics of the step.
            records: Records of its trajectories, in the order of their file.
            numbers: The learner's numbers of the recorded tokens.
        """
        return Verdict()

    @guarded()
    def milestone(self) -> None:
        """Note that the metrics of an evaluation or a checkpoint are in the run's directory."""


class Monitors:
    """The monitors of a run."""

    def __init__(self, classes: Sequence[type[Monitor]] = ()) -> None:
        """Use some classes, which `open` makes instances of."""
        self._classes = classes
        self._opened: Sequence[Monitor] = ()

    @classmethod
    def installed(cls, config: LearningConfig) -> "Monitors":
        """Return the monitors of installed packages that want to watch a run with this configuration.

        Raises:
            ConfigError: A setting for a monitor is invalid, a monitor cannot be imported, or `health` is on but nothing
                provides it.
        """
        found = {name: load_class(point, Monitor) for name, point in plugins(MONITORS).items()}
        if isinstance(config, TrainConfig) and config.health.mode != "off" and _HEALTH not in found:
            raise ConfigError(
                f'health.mode = "{config.health.mode}": no installed package has the monitor {_HEALTH!r}; install torl '
                'again, or set health.mode to "off"'
            )
        return cls([each for each in found.values() if each.wants(config)])

    def open(self, config: LearningConfig, directory: Path, first_step: int) -> None:
        """Make the monitors of a run, or make them again when it restarts.

        Raises:
            TorlError: A monitor cannot be made, for example because the records of the run are damaged.
        """
        self._opened = [each(config, directory, first_step) for each in self._classes]

    def observe(
        self,
        step: int,
        metrics: Mapping[str, float],
        records: Sequence[TrajectoryRecord],
        numbers: Mapping[TokenKey, UpdateNumbers],
    ) -> Verdict:
        """Add a step to each monitor and return their verdicts as one (`Monitor.observe`)."""
        verdicts = [each.observe(step, metrics, records, numbers) for each in self._opened]
        return Verdict(
            {name: value for each in verdicts for name, value in each.metrics.items()},
            [text for each in verdicts for text in each.warnings],
            next((each.error for each in verdicts if each.error is not None), None),
        )

    def milestone(self) -> None:
        """Tell each monitor of an evaluation or a checkpoint."""
        for each in self._opened:
            each.milestone()


def require_known_names(config: LearningConfig) -> None:
    """Raise ConfigError if `checkpoint.keep_best` or a setting for a monitor names what does not exist."""
    Monitors.installed(config)
    require_evaluation_metric(config)
