"""Memory of a learner's update, compared with the estimate of `torl plan`: by the benchmark, which prints it."""

import json
import subprocess
import sys

import pytest

from cli import ROOT


@pytest.mark.timeout(900)
def test_an_update_takes_the_memory_that_was_planned() -> None:
    command = [sys.executable, "-m", "benchmarks.learner.gpu", "--rounds", "1", "--calls"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert ended.returncode == 0, ended.stderr[-3000:]
    result = json.loads(ended.stdout.splitlines()[-1])
    assert 0.8 < result["peak_vs_plan"] < 1.05, result
