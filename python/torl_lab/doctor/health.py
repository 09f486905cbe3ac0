"""The doctor in a run: its checks on the records of each step while the run trains (`health` in the configuration)."""

import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from torl.base.errors import HealthError
from torl.base.types import UpdateNumbers
from torl.run.config import LearningConfig, TrainConfig
from torl.run.records import metric_names as names
from torl.run.records.files import METRICS_FILE, append_atomically
from torl.run.records.reading import MetricsTail
from torl.run.records.rows import TrajectoryRecord
from torl.run.records.tokens import TokenKey
from torl.training.monitor import Monitor, Verdict
from torl_lab.doctor.history import RECENT, StepHistory, read_evaluated_questions, read_history
from torl_lab.doctor.registry import installed_checks, one_line, require_known_checks, run_checks
from torl_lab.doctor.run_check import RunFinding

LOG: Final = "logs/health.log"
"""Log of the findings, relative to the run directory."""
_GRACE: Final = 2 * RECENT
"""Steps of a resumed run before its first check, so that it is judged by steps after the change of a setting. Also the
steps without a finding after which it is reported again."""


class Health(Monitor):
    """The checks of a run, whose history is extended by each step. It does not watch if `health.mode` is "off"."""

    def __init__(self, config: LearningConfig, directory: Path, first_step: int) -> None:
        """Read the history of a resumed run.

        Raises:
            RecordError: The records are damaged.
        """
        assert isinstance(config, TrainConfig)  # `wants` no other
        self._config = config
        self._directory = directory
        self._checks = installed_checks(config.health.ignore)
        self._history = read_history(directory, config, before=first_step) if first_step else StepHistory(config)
        self._first_check = first_step + _GRACE if first_step else 0
        self._tail = MetricsTail(directory / METRICS_FILE)
        self._seen: dict[str, int] = {}  # latest step of each finding, by its check
        self._failed: set[str] = set()
        self._is_off = False

    @classmethod
    def wants(cls, config: LearningConfig) -> bool:
        """Whether the configuration is of training, with checks.

        Raises:
            ConfigError: `health.ignore` names an unknown check, or the check of a package is invalid.
        """
        if not isinstance(config, TrainConfig):
            return False
        require_known_checks(config)
        if config.health.mode == "off":
            return False
        installed_checks(config.health.ignore)  # an invalid one is refused before the run begins
        return True

    def observe(
        self,
        step: int,
        metrics: Mapping[str, float],
        records: Sequence[TrajectoryRecord],
        numbers: Mapping[TokenKey, UpdateNumbers],
    ) -> Verdict:
        """Add a step, and check the run if a check is due. A bug of a check is a warning and does not end the run."""
        if self._is_off:
            return Verdict()
        try:
            self._history.add(step, metrics, records, numbers)
            self._read_evaluations()
        except Exception as error:
            self._is_off = True
            self._log_failure(step, "the records", error)
            return Verdict(warnings=[f"step {step + 1}: health checks are off from now on: {error!r} ({LOG})"])
        if step < self._first_check:
            return Verdict()
        results = run_checks(self._history, self._checks)
        findings = results.findings
        found = {names.FINDINGS: len(findings)} | {names.finding(each.check.id): 1 for each in findings}
        new = [each for each in findings if step - self._seen.get(each.check.id, -_GRACE - 1) > _GRACE]
        self._seen |= {each.check.id: step for each in findings}
        for each in new:
            self._log(step, "\n".join([*each.lines(), ""]))
        failed = {name: error for name, error in results.failed.items() if name not in self._failed}
        self._failed |= failed.keys()
        for name, raised in failed.items():
            self._log_failure(step, name, raised)
        if findings and self._config.health.mode == "stop" and step + 1 < self._config.run.steps:
            return Verdict(found, error=HealthError(_message(step, findings)))
        warnings = [f"step {step + 1}: {each}" for each in new]
        warnings += [f"step {step + 1}: {name}: {one_line(raised)} ({LOG})" for name, raised in failed.items()]
        return Verdict(found, warnings)

    def _read_evaluations(self) -> None:
        rows = [row for row in self._tail.read() if names.TIME_EVALUATION in row]
        self._history.evaluations += rows
        if rows and not self._history.evaluated:
            self._history.evaluated = read_evaluated_questions(self._directory)

    def _log(self, step: int, text: str) -> None:
        append_atomically(self._directory / LOG, f"step {step + 1}: {text}".encode())

    def _log_failure(self, step: int, name: str, error: Exception) -> None:
        self._log(step, f"{name}: {''.join(traceback.format_exception(error))}")


def _message(step: int, findings: Sequence[RunFinding]) -> str:
    named = ", ".join(each.check.id for each in findings)
    return "\n".join(
        [
            f"step {step + 1}: a finding stopped the run (health.mode): {named}",
            *(line for each in findings for line in each.lines()),
            f"The checkpoint of step {step + 1} is written. Change the setting and resume (--run.resume), or continue "
            "with the check in health.ignore",
        ]
    )
