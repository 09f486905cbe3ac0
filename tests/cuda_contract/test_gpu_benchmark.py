"""The benchmark of one GPU, on the CPU with a tiny model: all of its parts run."""

import json
import subprocess
import sys

import pytest

from cli import ROOT

SHAPE = {"hidden": 64, "intermediate": 128, "layers": 1, "heads": 2, "groups": 1, "samples": 4, "response-tokens": 20}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_benchmark_of_a_gpu_runs_on_a_cpu() -> None:
    words = [word for name, value in SHAPE.items() for word in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "benchmarks.learner.gpu", "--on-cpu", "--rounds", "1", *words]
    ended = subprocess.run(
        [*command, "--steps", "2", "--calls", "0", "1"], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    result = json.loads(ended.stdout.splitlines()[-1])
    assert result["tokens_per_s"] > 0
    assert result["step_seconds"].keys() == {"0", "1"}
