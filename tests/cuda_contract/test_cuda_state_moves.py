"""A learner that leaves its memory between steps learns the same, to the bit, with the options it has on a GPU."""

import itertools
from pathlib import Path

import pytest

from learner_fixtures import write_tiny_model
from rank_forks import call_forked
from rank_moves import compare, offloaded


@pytest.mark.parametrize(
    ("stage", "lora", "world_size"),
    [
        pytest.param(stage, lora, size, marks=() if (lora, size) == (stage == 3, 2) else pytest.mark.slow)
        for stage, lora, size in itertools.product([2, 3], [False, True], [1, 2])
    ],
)
def test_moves_change_no_bit(stage: int, lora: bool, world_size: int, tmp_path: Path) -> None:
    for found in call_forked(compare, write_tiny_model(tmp_path / "model"), tmp_path, stage, lora, world_size):
        assert len(found["straight"]) > 10
        assert found["straight"] == found["moved"]
        assert found["stayed"] == 0
        assert (found["frozen"] > 0) == lora


@pytest.mark.parametrize(
    ("stage", "offload"),
    [
        pytest.param(1, "optimizer", marks=pytest.mark.slow),
        (2, "optimizer"),
        (3, "all"),
        pytest.param(3, "parameters", marks=pytest.mark.slow),
    ],
)
def test_parts_in_cpu_memory_change_no_result(stage: int, offload: str, tmp_path: Path) -> None:
    """ZeRO-Offload, with several rows in a step. At stage 3 it rounds the norm of the gradients elsewhere."""
    plain, found = call_forked(offloaded, write_tiny_model(tmp_path / "model"), tmp_path, stage, offload, 2)
    assert len(plain) > 80
    assert found == pytest.approx(plain, rel=1e-6)
