"""Ranks on a GPU that computes no numbers, whose process group has no backend for the CPU."""

from pathlib import Path
from typing import Any

import pytest
from learner_fixtures import write_tiny_model
from rank_forks import call_forked
from rank_on_fake_gpu import broadcast_from_cpu, share_row, walk

GPU = ["cuda:0"]
BOTH: dict[str, Any] = {"kl": {"coefficient": 0.1}, "estimator": {"name": "ppo"}}


@pytest.mark.parametrize(
    ("stage", "lora", "algorithm"),
    [(0, False, BOTH), (1, False, {}), (2, True, {}), (3, True, {}), (3, False, BOTH)],
    ids=["0-critic-reference", "1", "2-lora", "3-lora", "3-critic-reference"],
)
def test_no_collective_takes_a_cpu_tensor(stage: int, lora: bool, algorithm: dict[str, Any], tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "model")
    found = call_forked(walk, model, stage, lora, algorithm)
    assert found["device"] == "cuda:0"
    assert found["started"] == {"trained": GPU, "frozen": GPU * lora, "state": GPU}
    assert found["computed"] == GPU * (3 if algorithm else 1)
    assert found["exported"] == found["written"] == ["cpu"]
    assert any("lora_A" in name for name in found["exported names"]) == lora
    assert found["emptied"] == 1


def test_ranks_share_a_row_on_the_gpu(tmp_path: Path) -> None:
    assert call_forked(share_row, write_tiny_model(tmp_path / "model")) == GPU * 3


def test_collectives_of_cpu_tensors_raise() -> None:
    fake, real = call_forked(broadcast_from_cpu)
    assert fake == "c10d.broadcast_.default of a CPU tensor"
    assert real == "No backend type associated with device type cpu"
