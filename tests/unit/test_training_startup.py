"""The start of a run that resumes without a checkpoint."""

import json
from pathlib import Path
from typing import Any

import pytest

from torl.config import TrainConfig
from torl.config.loading import find_config, load_config
from torl.errors import CheckpointError
from torl.report.console import Console
from torl.training import startup


@pytest.mark.parametrize(
    ("steps", "is_finished", "every", "is_refused"),
    [
        (0, False, 4, False),
        (7, False, 4, False),  # the checkpoint of step 4 may not have been complete
        (8, False, 4, True),
        (8, False, 0, False),
        (1, True, 0, True),  # the last step always writes one
    ],
)
async def test_run_without_its_checkpoints_is_not_started_again(
    steps: int, is_finished: bool, every: int, is_refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class StartedError(Exception):
        pass

    async def machine_of(cluster: Any) -> None:
        raise StartedError

    monkeypatch.setattr(startup, "machine_of", machine_of)  # the next thing that a start needs
    if steps:
        rows = "".join(json.dumps({"step": step}) + "\n" for step in range(1, steps + 1))
        (tmp_path / "metrics.jsonl").write_text(rows)
    if is_finished:
        (tmp_path / "summary.json").write_text("{}")
    settings = {"run.directory": str(tmp_path), "run.resume": "true", "checkpoint.every_steps": str(every)}
    config = load_config(TrainConfig, find_config("demo"), settings)
    nothing: Any = None
    with (
        pytest.raises(CheckpointError, match="steps, but no checkpoint") if is_refused else pytest.raises(StartedError)
    ):
        await startup.prepare_inputs(config, nothing, nothing, {}, tmp_path, Console(), nothing)
