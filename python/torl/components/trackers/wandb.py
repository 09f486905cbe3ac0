"""Weights & Biases, and trackio, whose client is alike."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torl.base.errors import ConfigError
from torl.components.trackers.tracker import Example, Tracker, example_table, import_client, run_id, run_settings


class WeightsAndBiases(Tracker):
    """A run in Weights & Biases. Its x-axis is the metric "step", so that a resumed run may write steps again."""

    def __init__(
        self,
        run_directory: Path,
        resume_step: int | None,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        """Start the run in W&B, or continue it.

        Args:
            arguments: Keyword arguments of `wandb.init`, such as { project = "math", mode = "offline" }. The project is
                "torl" and the name that of the run directory if they are not given.

        Raises:
            ConfigError: wandb is not installed, or the run cannot be started.
        """
        self._wandb = import_client("wandb", "wandb")
        try:
            self._run: Any = self._wandb.init(
                **{
                    "project": "torl",
                    "name": run_directory.resolve().name,
                    "id": run_id(run_directory, "wandb"),
                    "resume": "allow",
                    "dir": str(run_directory),
                    "config": run_settings(run_directory),
                    "settings": self._wandb.Settings(silent=True, console="off"),
                    **(arguments or {}),
                }
            )
        except (self._wandb.Error, TypeError) as error:
            raise ConfigError(
                f"run.trackers.wandb: no run in W&B: {error}; arguments = {{ mode = 'offline' }} needs no account"
            ) from error
        self._run.define_metric("*", step_metric="step")

    def write(self, step: int, metrics: Mapping[str, float], wall_time: float) -> None:
        self._run.log({"step": step, **metrics})

    def write_examples(self, step: int, examples: Sequence[Example], evaluation_set: str | None) -> None:
        if table := example_table(self._wandb, step, examples, evaluation_set):
            self._run.log({"step": step, **table})

    def close(self, failed: bool = False) -> None:
        self._run.finish(exit_code=int(failed))


class Trackio(Tracker):
    """A run in trackio. Steps that a resumed run writes again are there twice."""

    def __init__(
        self,
        run_directory: Path,
        resume_step: int | None,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        """Start the run in trackio, or continue it.

        Args:
            arguments: Keyword arguments of `trackio.init`, such as { project = "math", space_id = "me/runs" }. The
                project is "torl" and the name that of the run directory with an id if they are not given.

        Raises:
            ConfigError: trackio is not installed, or `trackio.init` does not accept the arguments.
        """
        self._trackio = import_client("trackio", "trackio")
        defaults = {
            "project": "torl",
            "name": f"{run_directory.resolve().name}-{run_id(run_directory, 'trackio')}",
            "config": run_settings(run_directory),
            "resume": "allow",
            "embed": False,
            "auto_log_gpu": False,
            "auto_log_cpu": False,
        }
        try:
            self._run: Any = self._trackio.init(**{**defaults, **(arguments or {})})
        except TypeError as error:
            raise ConfigError(f"run.trackers.trackio.arguments: {error}") from error

    def write(self, step: int, metrics: Mapping[str, float], wall_time: float) -> None:
        self._run.log(dict(metrics), step=step)

    def write_examples(self, step: int, examples: Sequence[Example], evaluation_set: str | None) -> None:
        if table := example_table(self._trackio, step, examples, evaluation_set):
            self._run.log(table, step=step)

    def close(self, failed: bool = False) -> None:
        self._run.finish()
