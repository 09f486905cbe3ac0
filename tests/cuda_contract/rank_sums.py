"""Ranks whose gradients differ by more than bfloat16 can add."""

from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from rank_chain import in_ranks
from rank_moves import learner_setup
from torl.learner.deepspeed_engine import start_engine
from torl.learner.messages import RankSetup
from torl.learner.process_group import join_process_group, leave_process_group
from torl.learner.update import _step

SMALL = 2.0**-9
RANKS = 2


class Weight(nn.Module):
    """A parameter whose gradient is the input, twice."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2, dtype=torch.bfloat16))

    def forward(self, gradient: Tensor) -> Tensor:
        """Return the product with the weight."""
        return (self.weight * gradient).sum()


class Sums:
    """A rank with gradient 1, or `SMALL` on the second one."""

    def __init__(self, meeting: Path, number: int) -> None:
        join_process_group(RankSetup(learner_setup(Path(), stage=2), 1, f"file://{meeting}"), number, RANKS)
        self._gradient = torch.tensor([1.0, SMALL], dtype=torch.bfloat16)[number]

    def norms(self) -> dict[int, float]:
        """Return the norm of the summed gradients at each ZeRO stage."""
        found = {}
        for stage in (0, 1, 2, 3):
            engine = start_engine(Weight(), learner_setup(Path(), stage=stage).learner)
            engine.backward(engine(self._gradient) * RANKS)
            found[stage] = _step(engine, learning_rate=1e-6)
            engine.destroy()
        return found

    def close(self) -> None:
        """Leave the process group."""
        leave_process_group()


def reduced_gradients(directory: Path) -> list[dict[int, float]]:
    """Return the norms that each rank found."""
    torch.set_num_threads(1)
    return in_ranks(RANKS, partial(Sums, directory / "meeting"), Sums.norms)  # type: ignore[arg-type]
