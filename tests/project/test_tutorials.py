"""The tutorials, run as scripts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[2] / "docs" / "tutorials").glob("*.py"))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_tutorial_runs(script: Path, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(["", *sys.path[1:]]),  # modules that it writes
        "TORL_TUTORIAL_MODEL": "torl:demo/base_model",  # instead of one in a package
    }
    ended = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=850
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
