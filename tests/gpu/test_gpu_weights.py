"""Weights from one process to another, both on GPUs: to the bit, with checksums on both sides."""

from pathlib import Path

import pytest
import torch

from models import write_real_size_model
from weight_sending import assert_weights_arrive


@pytest.fixture(scope="module")
def model_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers under a real vocabulary, in bfloat16: a tensor that is many buckets, and many that share one."""
    return write_real_size_model(tmp_path_factory.mktemp("weights"))


async def test_weights_arrive_by_cuda_ipc(model_directory: Path, tmp_path: Path) -> None:
    await assert_weights_arrive(model_directory, tmp_path, "cuda_ipc", torch.device("cuda", 0))


async def test_weights_arrive_by_nccl(model_directory: Path, tmp_path: Path) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("NCCL takes one process for each GPU: this test needs two GPUs")
    await assert_weights_arrive(
        model_directory, tmp_path, "nccl", torch.device("cuda", 0), {"CUDA_VISIBLE_DEVICES": _second_gpu()}
    )


def _second_gpu() -> str:
    """The device as the sender receives it, regardless of the devices that this process may see."""
    return f"GPU-{torch.cuda.get_device_properties(1).uuid}"
