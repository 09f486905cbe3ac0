"""Tests for a machine with a GPU of 80 GB: `make test-gpu`. Without one they fail instead of passing."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _a_gpu_is_there() -> None:
    assert torch.cuda.is_available(), (
        "make test-gpu needs a CUDA GPU and its driver: torch.cuda.is_available() is false"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests in this folder with this tier."""
    for item in items:
        if "tests/gpu/" in item.path.as_posix():
            item.add_marker(pytest.mark.gpu)
