"""The start of a run that resumes without a checkpoint."""

from pathlib import Path
from typing import Any

import pytest

from torl.config import TrainConfig
from torl.config.loading import find_config, load_config
from torl.errors import CheckpointError
from torl.records.receipt import Receipt
from torl.report.console import Console
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
