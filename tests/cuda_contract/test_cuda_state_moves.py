"""A learner that leaves its memory between steps learns the same, to the bit, with the options it has on a GPU."""

from pathlib import Path

import pytest
from learner_fixtures import write_tiny_model
from rank_forks import call_forked
from rank_moves import compare


@pytest.mark.parametrize("world_size", [2, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
@pytest.mark.parametrize("stage", [2, 3])
def test_moves_change_no_bit(stage: int, lora: bool, world_size: int, tmp_path: Path) -> None:
    for found in call_forked(compare, write_tiny_model(tmp_path / "model"), tmp_path, stage, lora, world_size):
        assert len(found["straight"]) > 10
        assert found["straight"] == found["moved"]
        assert found["stayed"] == 0
        assert (found["frozen"] > 0) == lora
