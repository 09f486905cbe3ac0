"""Moves of a model that is never trained."""

import pytest
import torch
from torch import Tensor, nn

from torl.learner import offload
from torl.learner.offload import FrozenModelMover


class Tied(nn.Module):
    """A head that shares the embedding's weight, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("scale", torch.tensor([2.0]))

    def forward(self, ids: Tensor) -> Tensor:
        scaled: Tensor = self.head(self.embedding(ids)) * self.scale
        return scaled


def test_moves_keep_a_model_and_copy_it_to_the_host_once(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[torch.Size] = []
    to_host = offload._to_host
    monkeypatch.setattr(offload, "_to_host", lambda tensor: copied.append(tensor.shape) or to_host(tensor))
    model, ids = Tied().requires_grad_(False), torch.arange(5)
    expected = model(ids)
    mover = FrozenModelMover(model)
    on_device = model.embedding.weight.data_ptr()
    for _ in range(3):
        mover.offload()
        assert model.embedding.weight.data_ptr() == model.head.weight.data_ptr() != on_device
        assert torch.equal(model(ids), expected)
        mover.onload(torch.device("cpu"))
        assert torch.equal(model(ids), expected)
    assert copied == [(5, 3), (1,)]
