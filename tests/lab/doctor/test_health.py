"""The doctor in a run: what it reports of each step, when it stops the run, and what it takes from the records."""

from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from planted_runs import PLANTED, STEPS, Case, config
from torl.base.errors import ConfigError, HealthError
from torl.run.config import TrainConfig
from torl.run.display.console import Console
from torl.run.records import metric_names as names
from torl.run.records.files import METRICS_FILE
from torl.run.records.writers import RunWriter
from torl.training.monitor import Verdict
from torl.training.run import train
from torl_lab.doctor.command import describe
from torl_lab.doctor.health import LOG, Health
from torl_lab.doctor.registry import CHECKS, StepHistory, run_checks


def directory_of(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir(exist_ok=True)
    (tmp_path / METRICS_FILE).touch()
    return tmp_path


def watch(case: Case, directory: Path, *, first_step: int = 0, **settings: Any) -> list[Verdict]:
    """The verdicts on the steps of a run, up to the one that stops it. Earlier steps are read from the records."""
    names = {f"health__{name}": value for name, value in settings.items()}
    health = Health(with_health(case.config, names), directory_of(directory), first_step)
    verdicts = []
    for step in case.steps():
        if step.number < first_step:
            continue
        verdicts.append(health.observe(*step))
        if verdicts[-1].error is not None:
            break
    return verdicts


def with_health(changed: TrainConfig, settings: dict[str, Any]) -> TrainConfig:
    return changed.model_copy(update={"health": config(run__steps=100, **settings).health})


def test_flawless_run_has_no_warning(tmp_path: Path) -> None:
    verdicts = watch(Case(), tmp_path)
    assert [verdict.metrics for verdict in verdicts] == [{names.FINDINGS: 0}] * STEPS
    assert not any(verdict.warnings or verdict.error for verdict in verdicts)
    assert not (tmp_path / LOG).exists()


@pytest.mark.parametrize(
    "name", ["rate-without-effect", "unlearned-format", "no-signal", "wrong-engine", "lost-episodes"]
)
def test_finding_is_a_warning_once(name: str, tmp_path: Path) -> None:
    verdicts = watch(PLANTED[name], tmp_path)
    (warning,) = [text for verdict in verdicts for text in verdict.warnings]
    assert f": {name}: " in warning
    found = [step for step, verdict in enumerate(verdicts) if verdict.metrics.get(names.finding(name))]
    assert found == list(range(found[0], STEPS))
    assert warning.startswith(f"step {found[0] + 1}: ")
    assert (tmp_path / LOG).read_text().startswith(f"step {found[0] + 1}: {name}: ")


def test_run_is_stopped_with_its_finding(tmp_path: Path) -> None:
    *before, last = watch(PLANTED["rate-without-effect"], tmp_path, mode="stop")
    assert not any(verdict.error for verdict in before)
    assert isinstance(last.error, HealthError)
    message = str(last.error)
    assert message.startswith(f"step {len(before) + 1}: a finding stopped the run")
    assert "change: a higher learner.learning_rate" in message
    assert "trajectories/step_" in message
    assert "health.ignore" in message


def broken(*arguments: Any) -> Any:
    raise ZeroDivisionError("of a check")


def test_failing_check_is_a_warning_and_stops_neither_run_nor_other_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CHECKS["no-signal"], "measure", broken)
    verdicts = watch(PLANTED["rate-without-effect"], tmp_path)
    assert len(verdicts) == STEPS
    warnings = [text for verdict in verdicts for text in verdict.warnings]
    failure = (
        f"no-signal: the check ({__name__}:broken) failed in broken(StepHistory); ZeroDivisionError: of a check; at "
    )
    assert warnings[0].startswith(f"step 1: {failure}{__file__}:")
    assert warnings[0].endswith(f"({LOG})")
    assert [": rate-without-effect: " in text for text in warnings[1:]] == [True]
    assert "Traceback" in (tmp_path / LOG).read_text()
    results = run_checks(PLANTED["rate-without-effect"].history())
    assert list(results.failed) == ["no-signal"]
    (line,) = [line for line in describe(results) if line.startswith("FAILED")]
    assert line.startswith(f"FAILED {failure}{__file__}:")


def test_records_that_cannot_be_read_switch_the_checks_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StepHistory, "add", broken)
    first, *others = watch(PLANTED["rate-without-effect"], tmp_path, mode="stop")
    assert first.warnings == [f"step 1: health checks are off from now on: ZeroDivisionError('of a check') ({LOG})"]
    assert others == [Verdict()] * (STEPS - 1)


def test_last_step_does_not_stop(tmp_path: Path) -> None:
    """A run that ends anyway is evaluated and exported."""
    case = PLANTED["stall"]
    short = replace(case, config=config(run__steps=STEPS, health__mode="stop"))
    verdicts = [Health(short.config, directory_of(tmp_path), 0)]
    found = [verdicts[0].observe(*step) for step in short.steps()]
    assert found[-1].error is None
    assert found[-1].warnings


def test_ignored_check_does_not_stop(tmp_path: Path) -> None:
    verdicts = watch(PLANTED["no-signal"], tmp_path, mode="stop", ignore=["no-signal"])
    assert len(verdicts) == STEPS
    assert not any(verdict.warnings or verdict.error for verdict in verdicts)


def test_every_step_is_checked(tmp_path: Path) -> None:
    assert all(verdict.metrics for verdict in watch(Case(), tmp_path))


def test_resumed_run_is_judged_by_its_records_and_ten_new_steps(tmp_path: Path) -> None:
    """No step before shows a reward that could be compared with the first steps; the records have them."""
    case, first = PLANTED["entropy-collapse"], 15
    with RunWriter(directory_of(tmp_path)) as writer:
        for number, metrics, records, numbers in case.steps():
            if number < first:
                writer.write_trajectories(number, records)
                writer.write_tokens(number, numbers)
                writer.write_metrics(number, metrics)
    verdicts = watch(case, tmp_path, first_step=first, mode="stop")
    assert [bool(verdict.metrics) for verdict in verdicts[:11]] == [False] * 10 + [True]
    assert "entropy-collapse" in str(verdicts[-1].error)


def test_evaluations_are_read_as_they_are_written(tmp_path: Path) -> None:
    """The reward rises and held-out accuracy does not, which only the rows of evaluations tell."""
    case = PLANTED["reward-hacking"]
    warnings: list[str] = []
    with RunWriter(directory_of(tmp_path)) as writer:
        health = Health(config(), tmp_path, 0)
        for step in case.steps():
            for row in case.evaluations:
                if row["step"] == step.number:
                    values = {name: value for name, value in row.items() if name != "step"}
                    writer.write_metrics(step.number, {**values, names.TIME_EVALUATION: 1.0})
            warnings += health.observe(*step).warnings
    assert ["reward-hacking" in warning for warning in warnings] == [True]


async def test_misspelt_check_is_refused_at_the_start(tmp_path: Path) -> None:
    wrong = config(run__directory=str(tmp_path / "run"), health__ignore=["no-signl"])
    with pytest.raises(ConfigError, match="'no-signl' is not a check; did you mean 'no-signal'"):
        await train(wrong, Console(StringIO()))
    assert not (tmp_path / "run").exists()


def test_mode_off_wants_nothing() -> None:
    assert Health.wants(config())
    assert not Health.wants(config(health__mode="off"))
