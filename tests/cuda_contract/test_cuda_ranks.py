"""Ranks on a GPU that computes no numbers, whose process group has no backend for the CPU."""

from pathlib import Path
from typing import Any

import pytest

from learner_fixtures import write_tiny_model
from rank_forks import call_forked
from rank_on_fake_gpu import broadcast_from_cpu, share_row, walk

CPU, GPU = ["cpu"], ["cuda:0"]
BOTH: dict[str, Any] = {"kl": {"coefficient": 0.1}, "estimator": {"name": "ppo"}}


@pytest.mark.parametrize(
    ("stage", "lora", "algorithm"),
    [
        pytest.param(0, False, BOTH, id="0-critic-reference"),
        pytest.param(1, False, {}, id="1"),
        pytest.param(2, False, BOTH, id="2-critic-reference"),
        pytest.param(2, True, {}, id="2-lora", marks=pytest.mark.slow),
        pytest.param(3, True, {}, id="3-lora"),
        pytest.param(3, False, BOTH, id="3-critic-reference", marks=pytest.mark.slow),
    ],
)
def test_rank_computes_on_the_gpu_and_leaves_it(
    stage: int, lora: bool, algorithm: dict[str, Any], tmp_path: Path
) -> None:
    """Start, two steps with all moves, export and checkpoint. No collective takes a CPU tensor."""
    model = write_tiny_model(tmp_path / "model")
    found = call_forked(walk, model, stage, lora, algorithm)
    assert found["device"] == "cuda:0"
    assert found["frequencies"] == ["torch.float32 on cuda:0"]
    assert not found["rounds partial sums"]
    # A sharded reference model stays in CPU memory if the GPU is shared.
    reference = [] if not algorithm else GPU if stage < 3 else CPU
    resident = {"trained": GPU, "frozen": GPU * lora, "state": GPU, "reference": reference}
    assert found["started"] == resident
    assert found["computed"] == GPU * (3 if algorithm else 1)
    for step in range(2):
        assert found[f"step {step}"] == resident
        if stage >= 2:
            assert found[f"parameters {step}"] == resident | {"state": CPU}
            assert found[f"offloaded {step}"] == {
                "trained": CPU,
                "frozen": (CPU if stage == 3 else GPU) * lora,
                "state": CPU,
                "reference": CPU * bool(algorithm),
            }
            assert found[f"back {step}"] == resident
    assert found["rows reported"] == (2 if algorithm else 1)  # they restart the timeout of an update
    assert found["exported"] == found["written"] == CPU
    assert any("lora_A" in name for name in found["exported names"]) == lora
    assert found["emptied"] == 1


@pytest.mark.parametrize(
    ("stage", "offload"),
    [
        (1, "optimizer"),
        (2, "optimizer"),
        (3, "all"),
    ],
)
def test_rank_computes_with_parts_in_cpu_memory(stage: int, offload: str, tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "model")
    found = call_forked(walk, model, stage, False, {"kl": {"coefficient": 0.1}}, offload)
    shards = CPU if offload == "all" else GPU
    expected = {"trained": shards, "frozen": [], "state": CPU, "reference": shards}
    assert found["started"] == found["step 0"] == found["step 1"] == expected
    assert found["computed"] == GPU * 2
    assert found["exported"] == found["written"] == CPU


def test_ranks_share_a_row_on_the_gpu(tmp_path: Path) -> None:
    devices = call_forked(share_row, write_tiny_model(tmp_path / "model"))
    assert len(devices) > 50  # of outputs, and of the gradients of two models
    assert {*devices} == {*GPU}


def test_collectives_of_cpu_tensors_raise() -> None:
    fake, real = call_forked(broadcast_from_cpu)
    assert fake == "c10d.broadcast_.default of a CPU tensor"
    assert real == "No backend type associated with device type cpu"
