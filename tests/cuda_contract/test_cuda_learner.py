"""A rank's device, the precision of its collectives, and the allocator's options during a transfer."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from rank_forks import call_forked, forked
from rank_moves import learner_setup
from rank_sums import SMALL, reduced_gradients
from torl.base.errors import LearnerError
from torl.components.weights.transports.shared_memory import _no_expandable_segments
from torl.learner.learner import Learner
from torl.learner.messages import RankSetup
from torl.learner.process_group import join_process_group

without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")


@without_gpu
def test_rank_without_its_gpu_refuses_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    rank = RankSetup(learner_setup(Path(), stage=2), 1, "", on_gpu=True)
    with pytest.raises(LearnerError, match=r"rank 0 has been assigned GPU 3, which torch cannot use: .*NVIDIA driver"):
        join_process_group(rank, 0, 1)


@without_gpu
async def test_learner_on_devices_requires_them(tmp_path: Path) -> None:
    with forked(), pytest.raises(LearnerError, match="rank 0 has been assigned GPU 3, which torch cannot use"):
        await Learner.start(learner_setup(Path(), stage=2), log_directory=tmp_path, devices=["3"])


@pytest.mark.parametrize("variable", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_rank_refuses_page_locked_buffers_that_are_not_rounded(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv(variable, "max_split_size_mb:512,pinned_max_round_threshold_mb:64")
    rank = RankSetup(learner_setup(Path(), stage=2), 1, "", on_gpu=True)
    with pytest.raises(LearnerError, match=rf"{variable} sets pinned_max_round_threshold_mb, .* remove the option"):
        join_process_group(rank, 0, 1)


def test_gradients_of_ranks_are_summed_in_float32(tmp_path: Path) -> None:
    """In bfloat16 the sum of both would be 1, as it is without ZeRO. Its norm is float32 always."""
    sums = {0: 1.0, 1: 1 + SMALL, 2: 1 + SMALL, 3: 1 + SMALL}
    for norms in call_forked(reduced_gradients, tmp_path):
        assert norms == {stage: pytest.approx(2**0.5 * total, rel=1e-6) for stage, total in sums.items()}


SETTINGS = "max_split_size_mb:512, expandable_segments: True,garbage_collection_threshold:0.8"


@pytest.fixture
def _allocator_settings() -> Iterator[None]:
    before = torch._C._accelerator_getAllocatorSettings()
    yield
    torch._C._accelerator_setAllocatorSettings(before)


@pytest.mark.usefixtures("_allocator_settings")
@pytest.mark.parametrize(
    ("settings", "during"), [(SETTINGS, SETTINGS.replace("True", "False")), ("max_split_size_mb:512",) * 2]
)
def test_transfer_keeps_all_other_options_of_the_allocator(settings: str, during: str) -> None:
    torch._C._accelerator_setAllocatorSettings(settings)
    with _no_expandable_segments():
        assert torch._C._accelerator_getAllocatorSettings() == during
    assert torch._C._accelerator_getAllocatorSettings() == settings
