"""TensorBoard's event files, and the clients of Weights & Biases, trackio and MLflow."""

import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from torl.base.errors import ConfigError
from torl.components.trackers.tracker import (
    Example,
    Tracker,
    example_table,
    examples_due,
    import_client,
    run_id,
    run_settings,
)


class TensorBoard(Tracker):
    """Scalars in TensorBoard's event format, in `tensorboard/`; needs no torch."""

    def __init__(self, run_directory: Path, resume_step: int | None) -> None:
        """Create an event file. TensorBoard ignores older files from `resume_step` on."""
        from tensorboard.compat.proto import event_pb2, summary_pb2  # type: ignore[import-untyped]
        from tensorboard.summary.writer.record_writer import RecordWriter  # type: ignore[import-untyped]

        self._event: Any = event_pb2.Event
        self._summary: Any = summary_pb2.Summary
        directory = run_directory / "tensorboard"
        directory.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time_ns()}.{os.getpid()}"
        self._file = (directory / name).open("xb", buffering=0)
        self._records = RecordWriter(self._file)
        self._records.write(self._event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())
        if resume_step is not None:
            started = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            event = self._event(wall_time=time.time(), step=resume_step, session_log=started)
            self._records.write(event.SerializeToString())

    def write(self, step: int, metrics: Mapping[str, float], wall_time: float) -> None:
        values = [self._summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
        event = self._event(wall_time=wall_time, step=step, summary=self._summary(value=values))
        self._records.write(event.SerializeToString())

    def close(self, failed: bool = False) -> None:
        self._file.close()


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


_MAX_PARAMETERS: Final = 100  # of one request
_MAX_METRICS: Final = 1000
_MAX_PARAMETER_CHARACTERS: Final = 6000
_NOT_IN_NAMES: Final = re.compile(r"[^/\w.\- :]")


class MLflow(Tracker):
    """A run in MLflow, at MLFLOW_TRACKING_URI, by the name of the run directory.

    Its experiment is MLFLOW_EXPERIMENT_NAME, or "torl", and created if it is missing. Characters that MLflow forbids in
    the names of metrics become "_".
    """

    def __init__(self, run_directory: Path, resume_step: int | None) -> None:
        """Start the run in MLflow, or continue it.

        Raises:
            ConfigError: MLflow is not installed, or the run cannot be started.
        """
        mlflow = import_client("mlflow", "mlflow")
        try:
            self._start(mlflow, run_directory, os.environ.get("MLFLOW_EXPERIMENT_NAME", "torl"))
        except mlflow.exceptions.MlflowException as error:
            uri = mlflow.get_tracking_uri()
            raise ConfigError(f"run.trackers.mlflow: no run at MLFLOW_TRACKING_URI = {uri!r}: {error}") from error

    def _start(self, mlflow: Any, run_directory: Path, experiment: str) -> None:
        entities = import_client("mlflow.entities", "mlflow")
        self._metric, parameter = entities.Metric, entities.Param
        self._client: Any = mlflow.MlflowClient()
        found = self._client.get_experiment_by_name(experiment)
        experiment_id = found.experiment_id if found else self._client.create_experiment(experiment)
        identity = run_id(run_directory, "mlflow")
        runs = self._client.search_runs([experiment_id], f"tags.torl_id = '{identity}'", max_results=1)
        if runs:
            self._id = runs[0].info.run_id
            self._client.update_run(self._id, status="RUNNING")
            settings = {}  # MLflow forbids a second value of a parameter
        else:
            name = run_directory.resolve().name
            made = self._client.create_run(experiment_id, tags={"torl_id": identity}, run_name=name)
            self._id = made.info.run_id
            settings = run_settings(run_directory)
        parameters = [
            parameter(_NOT_IN_NAMES.sub("_", name), str(value)[:_MAX_PARAMETER_CHARACTERS])
            for name, value in settings.items()
        ]
        for start in range(0, len(parameters), _MAX_PARAMETERS):
            self._client.log_batch(self._id, params=parameters[start : start + _MAX_PARAMETERS])
        if (run_directory / "config.toml").exists():
            self._client.log_artifact(self._id, str(run_directory / "config.toml"))

    def write(self, step: int, metrics: Mapping[str, float], wall_time: float) -> None:
        now = round(wall_time * 1000)
        rows = [self._metric(_NOT_IN_NAMES.sub("_", name), float(value), now, step) for name, value in metrics.items()]
        for start in range(0, len(rows), _MAX_METRICS):
            self._client.log_batch(self._id, metrics=rows[start : start + _MAX_METRICS])

    def write_examples(self, step: int, examples: Sequence[Example], evaluation_set: str | None) -> None:
        if examples_due(step, evaluation_set):
            text = json.dumps([asdict(each) for each in examples], ensure_ascii=False, indent=1)
            self._client.log_text(self._id, text, f"examples/{evaluation_set or 'training'}_{step:06d}.json")

    def close(self, failed: bool = False) -> None:
        self._client.set_terminated(self._id, "FAILED" if failed else "FINISHED")
