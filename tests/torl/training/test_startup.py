"""The start of a run that resumes: without a checkpoint, and without the records before it."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders import scored, trajectory
from torl.base.errors import CheckpointError, RecordError
from torl.base.types import UpdateNumbers
from torl.learner.checkpoint.directory import checkpoint_path, open_checkpoint
from torl.run.config import TrainConfig
from torl.run.config.loading import find_config, load_config
from torl.run.display.console import Console
from torl.run.records.receipt import Receipt
from torl.run.records.rows import TrajectoryRecord
from torl.run.records.tokens import TokenKey
from torl.run.records.writers import RunWriter
from torl.training import startup


@pytest.mark.parametrize("had_checkpoint", [True, False])
async def test_run_without_its_checkpoints_is_not_started_again(
    had_checkpoint: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class StartedError(Exception):
        pass

    async def machine_of(cluster: Any) -> None:
        raise StartedError

    monkeypatch.setattr(startup, "machine_of", machine_of)  # the next thing that a start needs
    manifest = tmp_path / "checkpoints" / "step_4" / "manifest.json"
    receipt = Receipt.start(tmp_path, None, {})
    if had_checkpoint:
        manifest.parent.mkdir(parents=True)
        manifest.write_text("{}")
    receipt.append("row", 5, [])
    manifest.unlink(missing_ok=True)
    config = load_config(TrainConfig, find_config("demo"), {"run.directory": str(tmp_path), "run.resume": "true"})
    nothing: Any = None
    refused = pytest.raises(CheckpointError, match="no longer has the checkpoints that the run wrote")
    with refused if had_checkpoint else pytest.raises(StartedError):
        await startup.prepare_inputs(config, nothing, nothing, {}, tmp_path, Console(), nothing)


# --- the records before a checkpoint --------------------------------------------------------------------------------


class Position:
    """A sampler that takes any position."""

    def load_state_dict(self, state: object) -> None:
        pass


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A run of four steps with checkpoints after two and three of them, which was killed."""
    directory = tmp_path / "run"
    directory.mkdir()
    (directory / "config.toml").write_text("# The configuration from step 0 on.\n[run]\nseed = 1\n")
    with RunWriter(directory) as writer:
        for step in range(4):
            members = [scored(trajectory("a", "b", sample=index)) for index in range(2)]
            writer.write_trajectories(step, [TrajectoryRecord(step, each.trajectory, each.grade) for each in members])
            key = TokenKey(f"{step}/a", 0, 0)
            writer.write_tokens(step, {key: UpdateNumbers(0, {"advantages": np.ones(2, np.float32)})})
            writer.write_metrics(step, {"learner/loss": 0.25, "time/step": 1.0})
            if step in (1, 2):
                with open_checkpoint(checkpoint_path(directory, step + 1), {"step": step + 1, "sampler": {}}, {}):
                    pass
                writer.write_metrics(step + 1, {"time/checkpoint": 1.0})
    return directory


async def resumed(directory: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The output of a run that resumes, before it places itself."""

    class PlacedError(Exception):
        pass

    async def machine_of(cluster: Any) -> None:
        raise PlacedError

    monkeypatch.setattr(startup, "machine_of", machine_of)
    config = load_config(TrainConfig, find_config("demo"), {"run.directory": str(directory), "run.resume": "true"})
    nothing: Any = None
    sampler: Any = Position()
    printed = io.StringIO()
    with pytest.raises(PlacedError):
        await startup.prepare_inputs(config, nothing, sampler, {}, directory, Console(printed), nothing)
    return " ".join(printed.getvalue().split())


async def test_a_run_with_all_records_resumes_without_a_warning(killed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = await resumed(killed, monkeypatch)
    assert "resuming from" in printed
    assert "missing" not in printed


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[1:])),
        lambda path: path.write_bytes(path.read_bytes().replace(b"0.25", b"0.75", 1)),
    ],
    ids=["removed", "emptied", "first row removed", "row changed"],
)
async def test_a_run_without_the_metrics_before_its_checkpoint_does_not_resume(
    change: Callable[[Path], Any], killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(killed / "metrics.jsonl")
    with pytest.raises(RecordError, match=r"rows before step 3 are missing or have changed .* restore the file"):
        await resumed(killed, monkeypatch)


@pytest.mark.parametrize("name", ["trajectories/step_000001.jsonl", "tokens/step_000000.npz", "receipt.jsonl"])
async def test_a_run_says_which_records_before_its_checkpoint_are_missing(
    name: str, killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (killed / name).unlink()
    printed = await resumed(killed, monkeypatch)
    assert name in printed
    assert "missing" in printed


async def test_records_of_steps_that_are_played_again_may_be_missing(
    killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (killed / "trajectories" / "step_000003.jsonl").unlink()
    lines = (killed / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (killed / "metrics.jsonl").write_bytes(b"".join(line for line in lines if b'"step": 3' not in line))
    assert "missing" not in await resumed(killed, monkeypatch)
