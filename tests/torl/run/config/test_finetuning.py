"""The configuration of fine-tuning: what it takes from the configuration of a training run."""

from pathlib import Path

import pytest

from torl.api import calls
from torl.base.errors import RecordError
from torl.run.config import FinetuneConfig
from torl.run.config.command_line import parse_command_line
from torl.run.config.finetuning import FinetuneLearnerConfig
from torl.run.config.loading import find_config, load_config, presets

SETTINGS = {"finetune.train": "examples.jsonl", "run.directory": "runs/warm", "model.path": "m"}
TRAINING = """
run.steps = 500
run.seed = 7
learner = { learning_rate = 1e-6, lr_schedule = "cosine", warmup_steps = 40, zero_stage = 3 }
"""


@pytest.mark.parametrize("name", presets())
def test_length_and_learning_rate_of_presets_are_ignored(name: str) -> None:
    config = load_config(FinetuneConfig, find_config(name), SETTINGS)
    learner, default = config.learner, FinetuneLearnerConfig()
    assert config.run.steps is None
    assert learner.learning_rate == default.learning_rate == 1e-5
    assert (learner.lr_schedule, learner.warmup_steps) == (default.lr_schedule, default.warmup_steps)
    assert config.with_steps(100).total_steps == 4  # one epoch of 32 examples at a step


def test_other_settings_of_a_training_run_are_used(tmp_path: Path) -> None:
    file = tmp_path / "train.toml"
    file.write_text(TRAINING)
    config = load_config(FinetuneConfig, file, SETTINGS)
    assert (config.run.seed, config.learner.zero_stage, config.run.steps) == (7, 3, None)
    config = load_config(FinetuneConfig, file, {**SETTINGS, "run.steps": 5, "learner.learning_rate": 1e-4})
    assert (config.total_steps, config.learner.learning_rate) == (5, 1e-4)


def test_ignored_settings_of_a_training_run_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "train.toml"
    file.write_text(TRAINING)
    words = [word for name, value in SETTINGS.items() for word in (f"--{name}", value)]
    parse_command_line(FinetuneConfig, "torl finetune", "", [str(file), *words, "--learner.learning_rate", "1e-4"])
    expected = f"{file}: ignored settings of training: run.steps, learner.lr_schedule, learner.warmup_steps ("
    assert capsys.readouterr().err.startswith(expected)
    file.write_text(f"{TRAINING}finetune.batch_size = 16\n")
    parse_command_line(FinetuneConfig, "torl finetune", "", [str(file), *words])
    assert capsys.readouterr().err == ""


def test_files_for_finetuning_keep_theirs(tmp_path: Path) -> None:
    base, file = tmp_path / "base.toml", tmp_path / "finetune.toml"
    base.write_text(TRAINING)
    file.write_text(f'extends = "base.toml"\n{TRAINING}finetune.batch_size = 16\n'.replace("500", "60"))
    config = load_config(FinetuneConfig, file, SETTINGS)
    assert (config.total_steps, config.learner.learning_rate, config.learner.warmup_steps) == (60, 1e-6, 40)
    assert load_config(FinetuneConfig, _written(config, tmp_path)) == config


def test_sections_of_a_call_count(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    found = []

    async def finetune(config: FinetuneConfig, console: object) -> dict[str, object]:
        found.append(config)
        return {}

    monkeypatch.setattr(calls.supervised_run, "finetune", finetune)
    with pytest.raises(RecordError, match="not the directory of a run"):  # nothing was trained
        calls.finetune("demo", SETTINGS, run={"steps": 9}, learner={"learning_rate": 1e-4})
    assert (found[0].total_steps, found[0].learner.learning_rate, found[0].learner.zero_stage) == (9, 1e-4, 0)
    assert capsys.readouterr().out == ""
    with pytest.raises(RecordError, match="not the directory of a run"):
        calls.finetune("demo", SETTINGS, run={"steps": 9})
    assert capsys.readouterr().out.startswith("preset demo: ignored settings of training: learner.learning_rate (")


def _written(config: FinetuneConfig, directory: Path) -> Path:
    path = directory / "config.toml"
    path.write_text(str(config))
    return path
