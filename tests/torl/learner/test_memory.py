"""A learner's process holds little more than its tensors."""

import re
from pathlib import Path

import pytest

from learner_fixtures import random_samples, start_learner, write_tiny_model

LAYERS = 12
TOKENS = 900
INTERMEDIATE = 8192
TENSOR_MIB = TOKENS * INTERMEDIATE * 4 / 2**20  # 28, which glibc would allocate in its heap


@pytest.fixture
def model_directory(tmp_path: Path) -> Path:
    """A model whose temporary tensors are much larger than its hidden states, which checkpointing keeps."""
    return write_tiny_model(tmp_path / "model", layers=LAYERS, intermediate=INTERMEDIATE, positions=1024)


def resident_mib(process: int, name: str) -> float:
    """`VmRSS`, now, or `VmHWM`, at its peak."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    assert found
    return int(found[1]) / 1024


@pytest.mark.slow
async def test_temporary_tensors_leave_no_holes(model_directory: Path, tmp_path: Path) -> None:
    samples = random_samples(1, seed=1, shortest=TOKENS, longest=TOKENS)
    settings = {"gradient_checkpointing": True, "max_row_tokens": TOKENS}
    async with await start_learner(model_directory, tmp_path / "logs", **settings) as learner:
        ((process,),) = learner.processes_by_log.values()
        before = resident_mib(process, "VmRSS")
        await learner.update(samples, step=1)
        grown = resident_mib(process, "VmHWM") - before
    assert grown < LAYERS * TENSOR_MIB  # eight such tensors; seventeen if a layer's blocks do not fit the next layer's
