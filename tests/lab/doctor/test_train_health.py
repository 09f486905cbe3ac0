"""The doctor in a real run: a finding stops it, its cause is proved, and another rate mends the run."""

import shutil
from pathlib import Path

import pytest

from cli import running, training
from torl.run.records.reading import read_metrics

SETTINGS = {
    "run.steps": "7",
    "rollout.prompts_per_step": "6",
    "rollout.samples_per_prompt": "4",
    "evaluation.max_problems": "4",
    "evaluation.samples_per_problem": "0",
    "evaluation.every_steps": "0",
    "checkpoint.every_steps": "2",
    "learner.dtype": "bfloat16",
    "health.mode": "stop",
}
pytestmark = pytest.mark.slow


def settings(directory: Path, rate: str) -> dict[str, str]:
    return SETTINGS | {"run.directory": str(directory), "learner.learning_rate": rate}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose updates are lost in rounding, which its doctor stops."""
    directory = tmp_path_factory.mktemp("stopped") / "run"
    with training(settings(directory, "1e-9"), log=directory.with_suffix(".log")) as command:
        assert command.wait() == 1, command.output()
        assert "a finding stopped the run (health.mode): rate-without-effect" in command.output()
        command.assert_nothing_left()
    return directory


def test_run_with_a_finding_stops_with_a_checkpoint(stopped: Path) -> None:
    trained = [row for row in read_metrics(stopped) if "time/step" in row]
    assert [row["health/diagnoses"] for row in trained] == [0, 0, 1]
    assert trained[-1]["health/rate-without-effect"] == 1
    assert (stopped / "checkpoints" / "step_000003" / "manifest.json").exists()


@pytest.mark.timeout(900)  # three starts of engine and learner
def test_cause_is_proved_by_its_step_made_again(stopped: Path, tmp_path: Path) -> None:
    with running("torl", "doctor", str(stopped), "--prove", log=tmp_path / "proof.log") as command:
        assert command.wait(600) == 1, command.output()
    shown = "rate-without-effect: proved: step 2: learner/changed_weights: 0 in the record, 0 made again, "
    assert shown in command.output()
    assert "with learner.learning_rate = 1e-05. Cause: the learning rate" in command.output()


def test_stopped_run_resumes_with_a_higher_rate(stopped: Path, tmp_path: Path) -> None:
    directory = tmp_path / "run"
    shutil.copytree(stopped, directory)
    resumed = settings(directory, "1e-4") | {"run.resume": "true"}
    with training(resumed, log=tmp_path / "resumed.log") as command:
        assert command.wait() == 0, command.output()
    assert [row["step"] for row in read_metrics(directory) if "time/step" in row] == list(range(7))
    assert (directory / "summary.json").exists()
