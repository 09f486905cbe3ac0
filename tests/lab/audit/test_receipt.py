"""The receipt of a run: every changed byte is found, and a resumed run continues its chain."""

import hashlib
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builders import scored, trajectory, write_config
from killed import killed_before_each_change
from torl.base.errors import EngineError
from torl.base.types import SampledTurn
from torl.components.engine import Engine, EngineOptions, EngineSetup
from torl.run.config import TrainConfig
from torl.run.config.loading import find_config, load_config
from torl.run.display.console import Console
from torl.run.records.files import trajectory_file
from torl.run.records.receipt import RECEIPT_FILE, Receipt, end_receipt, read_receipt
from torl.run.records.rows import TrajectoryRecord
from torl.run.records.run_directory import config_files, read_configs
from torl.run.records.writers import RunWriter
from torl_lab.audit.receipt_records import check_receipt, detection_probability
from torl_lab.doctor.proof import StepMaker
from torl_lab.replay import differences
from torl_lab.replay.differences import row_differences, run_differences
from torl_lab.replay.step import main as replay
from torl_lab.replay.step import replay_step


def write_steps(directory: Path, first: int, stop: int, *, resume: bool = False, reward: float = 1.0) -> None:
    directory.mkdir(exist_ok=True)
    (directory / "config.toml").write_text("# The configuration from step 0 on.\n[run]\nseed = 1\n")
    with RunWriter(directory, resume_step=first if resume else None) as writer:
        for step in range(first, stop):
            members = [scored(trajectory("a", "b", sample=index), reward=reward) for index in range(2)]
            records = [TrajectoryRecord(step, each.trajectory, each.grade, 0.5) for each in members]
            writer.write_trajectories(step, records)
            writer.write_metrics(step, {"learner/loss": 0.25, "time/step": random.random()}, weights=f"{step:x}" * 8)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    directory = tmp_path / "run"
    write_steps(directory, 0, 3)
    (directory / "summary.json").write_text("{}\n")
    (directory / "model").mkdir()
    (directory / "model" / "model.safetensors").write_bytes(bytes(range(256)))
    end_receipt(directory, 3)
    return directory


def changed_bytes_found(run: Path, count: int, seed: int) -> int:
    """Flip a bit of `count` random bytes, one at a time, and return how many changes are found."""
    files = [path for path in sorted(run.rglob("*")) if path.is_file()]
    draw, found = random.Random(seed), 0
    for _ in range(count):
        (path,) = draw.choices(files, [path.stat().st_size for path in files])
        data = path.read_bytes()
        place = draw.randrange(len(data))
        path.write_bytes(data[:place] + bytes([data[place] ^ (1 << draw.randrange(8))]) + data[place + 1 :])
        found += bool(check_receipt(run).wrong)
        path.write_bytes(data)
    return found


def test_intact_receipt_is_accepted(run: Path) -> None:
    audit = check_receipt(run)
    assert audit.examples == []
    assert check_receipt(run, audit.head).examples == []
    assert check_receipt(run, "f" * 64).wrong


def test_a_run_killed_before_the_end_of_its_receipt_says_what_is_not_sealed(run: Path) -> None:
    note = "model and summary are not sealed: the receipt has no end"
    assert note not in check_receipt(run).note
    path = run / RECEIPT_FILE
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    audit = check_receipt(run)
    assert audit.examples == []
    assert note in audit.note


def test_changed_bytes_are_found(run: Path) -> None:
    assert changed_bytes_found(run, 60, seed=0) == 60


@pytest.mark.slow
def test_thousand_changed_bytes_are_found(run: Path) -> None:
    assert changed_bytes_found(run, 1000, seed=1) == 1000


def test_removed_and_added_records_are_found(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    (copy / "trajectories" / "step_000001.jsonl").unlink()
    assert any("step_000001" in each for each in check_receipt(copy).examples)
    shutil.copyfile(run / "trajectories" / "step_000001.jsonl", run / "trajectories" / "step_000009.jsonl")
    assert any("step_000009" in each for each in check_receipt(run).examples)


def test_resumed_run_continues_its_chain(tmp_path: Path) -> None:
    resumed, whole = tmp_path / "resumed", tmp_path / "whole"
    write_steps(resumed, 0, 3)
    last = read_receipt(resumed)[-1]["hash"]
    with (resumed / RECEIPT_FILE).open("ab") as file:
        file.write(b'{"event":"row","num')  # of a killed process
    assert check_receipt(resumed).examples == []
    write_steps(resumed, 1, 3, resume=True)
    write_steps(whole, 0, 3)
    assert check_receipt(resumed).examples == []
    lines = read_receipt(resumed)
    assert [(line["event"], line["step"]) for line in lines] == [
        ("start", 0),
        ("row", 0),
        ("start", 1),
        ("row", 1),
        ("row", 2),
    ]
    assert lines[2]["removed"] == last
    assert lines[-1]["content"] == read_receipt(whole)[-1]["content"]
    assert list(run_differences(resumed, whole)) == []


@pytest.mark.parametrize("changes", [{}, {"run.seed": 7}], ids=["same settings", "another seed"])
@pytest.mark.parametrize("step", [0, 1, 3])
def test_a_start_that_is_killed_anywhere_leaves_an_intact_receipt(
    step: int, changes: dict[str, Any], run: Path, tmp_path: Path
) -> None:
    """The files of a run change one after the other, and the run is audited and resumed from each state between."""
    (run / "config.toml").unlink()
    write_config(run, demo_config(run))
    write_again(run)

    def resume(directory: Path) -> None:
        config = demo_config(directory, **{"run.resume": True, **changes})
        RunWriter(directory, resume_step=step, configs=config_files(directory, config, step)).close()

    places = 0
    for directory in killed_before_each_change(resume, lambda number: copied(run, tmp_path / str(number))):
        assert check_receipt(directory).examples == []
        resume(directory)
        assert check_receipt(directory).examples == []
        configs = [first for first, _ in read_configs(directory)]
        assert configs == ([0, step] if changes else [0])
        places += 1
    assert places >= 8


def demo_config(directory: Path, **settings: Any) -> TrainConfig:
    # The configuration is that of one directory, whose copies have it.
    return load_config(TrainConfig, find_config("demo"), {"run.directory": "runs/killed", **settings})


def copied(run: Path, copy: Path) -> Path:
    shutil.copytree(run, copy)
    return copy


def write_again(run: Path) -> None:
    """Write the receipt of a finished run again, with the configuration that it has now."""
    (run / RECEIPT_FILE).unlink()
    receipt = Receipt.start(run, None, {})
    for line in (run / "metrics.jsonl").read_bytes().splitlines(keepends=True):
        step = json.loads(line)["step"]
        receipt.append("row", step, [trajectory_file(run, step)], row=hashlib.sha256(line).hexdigest())
    end_receipt(run, 3)


def test_first_difference_is_named(tmp_path: Path) -> None:
    for name, reward in (("a", 1.0), ("b", -1.0)):
        write_steps(tmp_path / name, 0, 2, reward=reward)
    (first,) = run_differences(tmp_path / "a", tmp_path / "b")
    assert (first.kind, first.before, first.after) == ("rewards", 1.0, -1.0)
    assert first.place.startswith("step 0, ")


def test_differing_token_of_an_observation_is_an_observation() -> None:
    row = {"group": "0/p", "sample": 0, "token_ids": [1, 2, 3, 4], "loss_mask": [[True, 2], [False, 2]]}
    (sampled,) = row_differences(0, [row], [row | {"token_ids": [1, 9, 3, 4]}])
    (observed,) = row_differences(0, [row], [row | {"token_ids": [1, 2, 9, 4]}])
    assert (sampled.kind, sampled.before, sampled.after) == ("tokens", 2, 9)
    assert (observed.kind, observed.place) == ("observations", "step 0, 0/p, sample 0, token 2")


def test_probability_of_a_find_is_that_of_draws_without_replacement() -> None:
    assert detection_probability(10, 10, 0.1) == 1.0
    assert detection_probability(10, 1, 0.5) == pytest.approx(0.5)
    assert detection_probability(10, 2, 0.2) == pytest.approx(1 - 8 / 10 * 7 / 9)


def test_each_file_of_equal_runs_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        write_steps(tmp_path / name, 0, 6)
    read: list[Path] = []

    def counted(function: Callable[[Path], Any]) -> Callable[[Path], Any]:
        return lambda run: read.append(run) or function(run)  # type: ignore[func-returns-value]

    for name in ("read_metrics", "read_receipt", "training_files"):
        monkeypatch.setattr(differences, name, counted(getattr(differences, name)))
    assert list(run_differences(tmp_path / "a", tmp_path / "b")) == []
    assert sorted(read) == [tmp_path / "a"] * 3 + [tmp_path / "b"] * 3


# --- replay -----------------------------------------------------------------------------------------------------------


class UnstartedEngine(Engine):
    """An engine that cannot start."""

    def __init__(self, setup: EngineSetup, options: EngineOptions) -> None:
        pass

    async def start(self) -> None:
        raise EngineError("no port is free")

    async def sample(self, *request: Any, **values: Any) -> SampledTurn:
        raise AssertionError("it did not start")


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[[str], Path]:
    """Write a run with a step, by the name of its engine."""

    def write(engine: str) -> Path:
        directory = tmp_path / "run"
        write_steps(directory, 0, 1)
        config = load_config(TrainConfig, find_config("demo"), {"engine": f"{__name__}:{engine}"})
        (directory / "config.toml").write_text(f"# The configuration from step 0 on.\n{config}")
        return directory

    return write


async def test_an_engine_that_does_not_start_is_the_error_of_a_replay(
    recorded: Callable[[str], Path], tmp_path: Path
) -> None:
    """Alone: `torl doctor --prove` continues with the next proof, and calls this one undecided."""
    with Console() as console:
        run = recorded("UnstartedEngine")
        with pytest.raises(EngineError, match="no port is free"):
            await replay_step(run, 0, console=console, output=tmp_path / "output", trust=True)
        with pytest.raises(EngineError, match="no port is free"):
            await StepMaker(run, load_config(TrainConfig, run / "config.toml"), console, trust=True)(0, {})


def test_replay_says_an_error_of_a_component(
    recorded: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert replay([str(recorded("UnstartedEngine")), "--step", "0", "--trust"]) == 2
    assert "error: no port is free" in capsys.readouterr().err


def test_replay_into_a_place_that_cannot_be_written_is_an_error(
    recorded: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.touch()
    run = recorded("UnstartedEngine")
    for output in (file, file / "below"):
        assert replay([str(run), "--step", "0", "--output", str(output)]) == 2
        assert f"error: {output}: cannot be written: " in capsys.readouterr().err
