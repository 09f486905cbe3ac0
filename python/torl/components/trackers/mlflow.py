"""MLflow, by its tracking client."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from torl.base.errors import ConfigError
from torl.components.trackers.tracker import Example, Tracker, examples_due, import_client, run_id, run_settings

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
