"""A rank on a GPU: loaded and trained at every ZeRO stage, and its state moved to the CPU and back."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli import ROOT
from models import write_shape

WORKSPACES = 80e6  # of cuBLAS, in two threads


@pytest.fixture(scope="module")
def model_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four layers of Qwen2.5-1.5B under its vocabulary."""
    return write_shape(tmp_path_factory.mktemp("shape"), hidden=1536, intermediate=8960, layers=4, heads=12, groups=2)


@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_state_comes_back_and_leaves_the_planned_memory(model_directory: Path, stage: int, lora: bool) -> None:
    script = ROOT / "tests" / "gpu" / "state_moves.py"
    command = [sys.executable, str(script), str(model_directory), str(stage), *(["--lora"] if lora else [])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    found = json.loads(ended.stdout.splitlines()[-1])
    assert found["device"] == "cuda:0"
    assert 0 < found["metrics"]["gradient_norm"] < 1e4, found["metrics"]
    assert len(found["moves"]) == (3 if stage >= 2 else 0)
    for moved in found["moves"]:
        assert moved["as before"], found
        for state, planned in found["planned"].items():
            assert moved[state] <= 1.05 * planned + WORKSPACES, (state, found)
        assert moved["without parameters reserved"] <= found["planned"]["without parameters"] + WORKSPACES, found
