"""The directory of a run: who may write it, and which configurations it keeps."""

from pathlib import Path
from typing import Any

import pytest

from builders import write_config
from torl.base.errors import ConfigError, RecordError
from torl.run.config import TrainConfig
from torl.run.config.loading import find_config, load_config
from torl.run.records.files import is_locked
from torl.run.records.run_directory import changed_keys, has_only_started, open_run_directory, read_configs


def config(directory: Path, **overrides: Any) -> TrainConfig:
    named = {name.replace("__", "."): value for name, value in overrides.items()}
    return load_config(TrainConfig, find_config("demo"), {"run.directory": str(directory), **named})


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The directory of a run that was started once."""
    path = tmp_path / "run"
    started = config(path)
    path.mkdir()
    assert write_config(path, started) == []
    return path


@pytest.mark.parametrize("name", ["receipt.jsonl", "trajectories", "metrics.jsonl"])
def test_run_has_only_started_until_it_writes_a_record(name: str, directory: Path) -> None:
    (directory / "metrics.jsonl").touch()  # opened
    assert has_only_started(directory)
    (directory / name).write_text('{"step": 0}\n')
    assert not has_only_started(directory)
    assert not has_only_started(directory / "other")


def test_opening_writes_no_configuration(tmp_path: Path) -> None:
    with open_run_directory(config(tmp_path / "run")) as directory:
        assert directory == tmp_path / "run"
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["logs"]


def test_written_records_are_read_back(directory: Path) -> None:
    assert load_config(TrainConfig, directory / "config.toml") == config(directory)
    assert changed_keys(directory, config(directory)) == []


def test_a_run_that_is_there_is_refused_and_stays_as_it_was(directory: Path) -> None:
    before = (directory / "config.toml").read_bytes()
    refused = pytest.raises(ConfigError, match=r"contains a run: resume it \(--run.resume\)")
    with refused, open_run_directory(config(directory, run__seed=9)):
        pass
    assert (directory / "config.toml").read_bytes() == before
    with open_run_directory(config(directory, run__resume=True)):  # the refused start holds no lock
        pass


def test_a_resumed_run_that_is_opened_and_not_begun_keeps_its_configuration(directory: Path) -> None:
    """Opening comes before the checks that may refuse it."""
    before = (directory / "config.toml").read_bytes()
    with open_run_directory(config(directory, run__resume=True, run__seed=9)):
        pass
    assert (directory / "config.toml").read_bytes() == before


def test_a_second_run_is_refused_until_the_first_has_ended(directory: Path) -> None:
    for _ in range(2):
        assert not is_locked(directory)
        with open_run_directory(config(directory, run__resume=True)):
            assert is_locked(directory)
            refused = pytest.raises(ConfigError, match="is being written by another run")
            with refused, open_run_directory(config(directory, run__resume=True)):
                pass


def test_resumed_run_logs_changes_and_keeps_each_configuration(directory: Path) -> None:
    first = (directory / "config.toml").read_text()
    second = config(directory, run__resume=True, learner__learning_rate=1.0, rollout__samples_per_prompt=4)
    assert write_config(directory, second) == [
        "rollout.samples_per_prompt changed from 8 to 4",
        "learner.learning_rate changed from 0.0001 to 1.0",
    ]
    assert (directory / "config.1.toml").read_text() == first
    third = config(directory, run__resume=True, learner__learning_rate=2.0, rollout__samples_per_prompt=4)
    write_config(directory, third)
    assert (directory / "config.2.toml").read_text().endswith(f"\n{second}")
    assert load_config(TrainConfig, directory / "config.toml") == third
    assert (directory / "config.1.toml").read_text() == first


def test_configurations_name_the_first_step_that_they_apply_to(directory: Path) -> None:
    changed = config(directory, run__resume=True, rollout__samples_per_prompt=4)
    write_config(directory, changed, 10)
    write_config(directory, changed, 20)  # no change: the steps from 10 on were played with it, too
    assert read_configs(directory) == [(0, config(directory)), (10, changed)]
    write_config(directory, changed, 5)
    assert [first for first, _ in read_configs(directory)] == [0, 5]


def test_a_key_that_was_or_is_unset_is_a_change(directory: Path) -> None:
    resumed = config(directory, run__resume=True, evaluation__max_problems=5)
    assert write_config(directory, resumed) == ["evaluation.max_problems changed from unset to 5"]
    assert write_config(directory, config(directory)) == ["evaluation.max_problems changed from 5 to unset"]


def test_another_choice_is_a_change_of_its_name_and_its_options(directory: Path) -> None:
    keys = [change.key for change in changed_keys(directory, config(directory, rollout__format__name="zerotir"))]
    assert keys == [
        "rollout.format.name",
        "rollout.format.error_style",
        "rollout.format.max_observation_characters",
        "rollout.format.max_observation_tokens",
    ]


def test_resuming_alone_changes_nothing(directory: Path) -> None:
    assert write_config(directory, config(directory, run__resume=True)) == []
    assert not (directory / "config.1.toml").exists()


def test_a_configuration_that_cannot_be_read_is_named(directory: Path) -> None:
    (directory / "config.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(RecordError, match=r"config\.toml: cannot be read"):
        write_config(directory, config(directory, run__resume=True))
