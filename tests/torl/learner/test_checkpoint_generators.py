"""States of random generators in a checkpoint: exact, and data only."""

import os
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from torl.base.errors import CheckpointError
from torl.learner.checkpoint.shards import generators_name
from torl.learner.checkpoint.snapshot import restore_rank, restore_rng_states, rng_states


def draws() -> tuple[float, float, float, float]:
    return random.random(), float(np.random.normal()), float(np.random.normal()), float(torch.rand(()))


@pytest.fixture
def unchanged_generators():
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    yield
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])


@pytest.mark.usefixtures("unchanged_generators")
def test_restored_generators_continue_where_they_were(tmp_path: Path) -> None:
    np.random.normal()  # the generator keeps the second of a pair
    path = tmp_path / "generators"
    path.write_bytes(rng_states())
    expected = draws()
    assert draws() != expected
    restore_rng_states(path)
    assert draws() == expected


class Program:
    """Executes a command when it is unpickled."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


def test_checkpoint_with_a_program_is_refused_and_not_executed(tmp_path: Path) -> None:
    trace = tmp_path / "executed"
    path = tmp_path / generators_name(0)
    torch.save({"python": Program(f"touch {trace}")}, path)
    with pytest.raises(CheckpointError, match="not the states of random generators"):
        restore_rank({}, tmp_path, rank=0)
    assert not trace.exists()
