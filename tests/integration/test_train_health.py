"""The doctor in a real run: a sick run is stopped with its diagnosis, and resumed with another setting."""

from pathlib import Path

import pytest
from cli import ROOT, running

from torl.records.reading import read_metrics

DEMO = str(ROOT / "python" / "torl" / "presets" / "demo.toml")
SETTINGS = {
    "run.steps": "7",
    "rollout.prompts_per_step": "6",
    "rollout.samples_per_prompt": "4",
    "evaluation.max_problems": "4",
    "evaluation.samples_per_problem": "0",
    "evaluation.every_steps": "0",
    "learner.dtype": "bfloat16",
    "health.mode": "stop",
}


@pytest.mark.slow
def test_rate_that_rounding_swallows_stops_the_run_and_a_higher_one_resumes_it(tmp_path: Path) -> None:
    directory = tmp_path / "run"

    def words(rate: str, **more: str) -> list[str]:
        options = SETTINGS | {"run.directory": str(directory), "learner.learning_rate": rate} | more
        return [word for name, value in options.items() for word in (f"--{name}", value)]

    with running("torl.train", DEMO, *words("1e-9"), log=tmp_path / "sick.log") as command:
        assert command.wait() == 1, command.output()
        assert "a diagnosis stopped the run (health.mode): rate-without-effect" in command.output()
        command.assert_nothing_left()
    trained = [row for row in read_metrics(directory) if "time/step" in row]
    assert [row["health/diagnoses"] for row in trained] == [0, 0, 0, 0, 1]
    assert trained[-1]["health/rate-without-effect"] == 1
    assert (directory / "checkpoints" / "step_000005" / "manifest.json").exists()
    with running("torl.train", DEMO, *words("1e-4", **{"run.resume": "true"}), log=tmp_path / "healthy.log") as command:
        assert command.wait() == 0, command.output()
    assert [row["step"] for row in read_metrics(directory) if "time/step" in row] == list(range(7))
    assert (directory / "summary.json").exists()
