"""Runs in wandb, trackio and MLflow, read back by the libraries' own readers."""

import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import mlflow
import pytest
from trackio.sqlite_storage import SQLiteStorage
from wandb.proto import wandb_internal_pb2

from builders import grade, trajectory
from torl.base.errors import ConfigError
from torl.base.options import ChosenFrom
from torl.components.trackers import TRACKERS, Tracker
from torl.run.records.rows import TrajectoryRecord
from torl.run.records.writers import RunWriter

CONFIG = "[run]\nseed = 7\n\n[rollout]\nmax_tool_calls = 3\n"


def write_run(directory: Path, name: str, **options: object) -> None:
    """Write three steps, resume at the second, and end there."""
    (directory / "config.toml").write_text(CONFIG)
    warnings: list[str] = []

    def tracker(resume_step: int | None) -> Tracker:
        made = ChosenFrom(TRACKERS, "tracker", positional_count=2).find(name)(directory, resume_step, **options)
        assert isinstance(made, Tracker)
        return made

    with RunWriter(directory, trackers=[tracker(None)], warn=warnings.append) as writer:
        for step in range(3):
            records = [TrajectoryRecord(step, trajectory("It is \\boxed{2}."), grade(False))]
            writer.write_trajectories(step, records)
            writer.write_metrics(step, {"reward/mean": step / 2, "tool/status/ok": 1.0})
    time.sleep(1.1)  # wandb names the directory of a start by its second
    with RunWriter(directory, resume_step=2, trackers=[tracker(2)], warn=warnings.append) as writer:
        writer.write_metrics(2, {"reward/mean": 7.0})
        writer.write_metrics(2, {"evaluation/a+b/reward/accuracy": 0.25})
    assert warnings == []


def leveldb_records(data: bytes) -> Iterator[bytes]:
    """Yield the records of a log in LevelDB's format: blocks of 32 KiB, in which a header has checksum, length, type.

    wandb counts the seven bytes of its own header to the first block.
    """
    position, parts = 0, b""
    while position + 7 <= len(data):
        left = 32768 - (position + 7) % 32768
        if left < 7:
            position += left
            continue
        _, length, kind = struct.unpack("<IHB", data[position : position + 7])
        parts += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # complete, or the last part
            yield parts
            parts = b""


def finished_records(file: Path) -> list[wandb_internal_pb2.Record]:
    """Return the records of a wandb file. The last one, of the exit, is written by another process after the run."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        records = [wandb_internal_pb2.Record.FromString(data) for data in leveldb_records(file.read_bytes()[7:])]
        if any(record.HasField("exit") for record in records):
            return records
        time.sleep(0.05)
    raise AssertionError(f"{file} has no record of the exit")


@pytest.fixture
def run_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "first"
    directory.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return directory


def test_wandb_offline_run_has_metrics_settings_and_examples(run_directory: Path) -> None:
    write_run(run_directory, "wandb", arguments={"mode": "offline", "project": "sums"})
    files = sorted(run_directory.glob("wandb/offline-run-*/*.wandb"))
    ids, configs, rows = set[str](), dict[str, object](), list[dict[str, object]]()
    for file in files:
        for record in finished_records(file):
            if record.HasField("run"):
                ids.add(record.run.run_id)
                assert record.run.project == "sums"
                configs |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
            if record.HasField("history"):
                row = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
                rows.append(row)
    assert len(ids) == 1  # the resumed run continues it
    assert configs["rollout.max_tool_calls"] == 3
    assert "versions.torl" in configs
    assert [(row["step"], row["reward/mean"]) for row in rows if "reward/mean" in row] == [
        (0, 0.0),
        (1, 0.5),
        (2, 1.0),
        (2, 7.0),
    ]
    assert {name for row in rows for name in row if name.startswith("evaluation")} == {"evaluation/a+b/reward/accuracy"}
    [table] = run_directory.glob("wandb/*/files/media/table/examples/*.json")
    assert "It is \\boxed{2}." in json.loads(table.read_text())["data"][0]


def test_trackio_run_has_metrics_settings_and_examples(run_directory: Path) -> None:
    write_run(run_directory, "trackio", arguments={"project": "torl-test", "name": "first"})
    [name] = SQLiteStorage.get_runs("torl-test")
    assert name == "first"
    logs = SQLiteStorage.get_logs("torl-test", name)
    assert [(row["step"], row["reward/mean"]) for row in logs if "reward/mean" in row] == [
        (0, 0.0),
        (1, 0.5),
        (2, 1.0),
        (2, 7.0),
    ]
    assert SQLiteStorage.get_run_config("torl-test", name)["rollout.max_tool_calls"] == 3
    [examples] = [row["examples/training"] for row in logs if "examples/training" in row]
    assert "It is \\\\boxed{2}." in json.dumps(examples)


@pytest.fixture
def uri(run_directory: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "sums")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (run_directory / "store").as_uri())
    return (run_directory / "store").as_uri()


def test_mlflow_run_has_metrics_settings_and_examples(run_directory: Path, uri: str) -> None:
    write_run(run_directory, "mlflow")
    client = mlflow.MlflowClient(uri)
    experiment = client.get_experiment_by_name("sums")
    assert experiment is not None
    [run] = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.params["rollout.max_tool_calls"] == "3"
    history = client.get_metric_history(run.info.run_id, "reward/mean")
    assert sorted((each.step, each.value) for each in history) == [(0, 0.0), (1, 0.5), (2, 1.0), (2, 7.0)]
    assert run.data.metrics["evaluation/a_b/reward/accuracy"] == 0.25
    text = mlflow.artifacts.load_text(f"{run.info.artifact_uri}/examples/training_000000.json")
    assert json.loads(text)[0]["response"] == "It is \\boxed{2}."


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_unknown_argument_of_a_library_is_named(run_directory: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=rf"run\.trackers\.{name}.*unexpected keyword argument 'projekt'"):
        write_run(run_directory, name, arguments={"projekt": "sums"})


def test_failed_run_is_marked_in_mlflow(run_directory: Path, uri: str) -> None:
    made = ChosenFrom(TRACKERS, "tracker", positional_count=2).find("mlflow")(run_directory, None)
    with pytest.raises(KeyError), RunWriter(run_directory, trackers=[made]):
        raise KeyError
    client = mlflow.MlflowClient(uri)
    [run] = client.search_runs([each.experiment_id for each in client.search_experiments()])
    assert run.info.status == "FAILED"
