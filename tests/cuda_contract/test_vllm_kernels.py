"""The sampler's Triton kernels of vLLM on a GPU, run in Triton's interpreter: they agree with the learner's head."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.skipif(
    find_spec("triton") is None, reason="Triton is not installed: vLLM's kernels for GPUs cannot be interpreted"
)


@pytest.fixture(scope="module")
def interpreted() -> dict[str, Any]:
    program = Path(__file__).with_name("interpreted_kernels.py")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run([sys.executable, program], env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    result: dict[str, Any] = json.loads(ended.stdout)
    return result


def test_logprobs_equal_the_learners_head(interpreted: dict[str, Any]) -> None:
    """The weights are the same, in bfloat16. A kernel skips the temperature 1."""
    assert len(interpreted["gaps"]) == 2
    assert max(interpreted["gaps"].values()) < 1e-5


def test_each_bit_of_a_seed_changes_the_draws(interpreted: dict[str, Any]) -> None:
    assert len(interpreted["draws"]) == 4
    for one, other in combinations(interpreted["draws"], 2):
        assert one != other


def test_a_seed_repeats_its_draws(interpreted: dict[str, Any]) -> None:
    assert interpreted["again"] == interpreted["draws"][-1][:4]


def test_draws_follow_the_distribution(interpreted: dict[str, Any]) -> None:
    scaled = np.exp(np.array(interpreted["logits"]) / interpreted["temperature"])
    expected = scaled / scaled.sum()
    drawn = np.bincount(np.concatenate(interpreted["draws"]), minlength=len(expected))
    assert np.abs(drawn / drawn.sum() - expected).max() < 0.12  # two standard deviations of 64 draws


def test_temperature_zero_is_greedy(interpreted: dict[str, Any]) -> None:
    assert interpreted["greedy"] == [int(np.argmax(interpreted["logits"]))] * 4
