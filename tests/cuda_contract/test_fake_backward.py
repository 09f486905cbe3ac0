"""The backward pass in Python, which ranks on a fake GPU take: its gradients are autograd's."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from fake_backward import backward
from torl.learner.model.head import LogprobHead


class Model(nn.Module):
    """Recomputed layers, a head with an explicit gradient, and a parameter that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU())
        self.head = LogprobHead(nn.Linear(8, 20, dtype=torch.float32), 1 << 20)
        self.scale = nn.Parameter(torch.ones(1, 8))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return a scalar."""
        hidden: Tensor = checkpoint(self.layer, inputs * self.scale, use_reentrant=False)
        logprobs, entropies = self.head(hidden + self.scale, torch.arange(len(inputs)), 0.7, "train")
        loss: Tensor = logprobs.sum() - 0.1 * entropies.mean() + hidden.bfloat16().square().mean()
        return loss


def test_gradients_equal_those_of_autograd(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model, inputs = Model(), torch.randn(5, 8)
    reduced: list[int] = []
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda each: reduced.append(id(each)))
    expected = torch.autograd.grad(model(inputs), list(model.parameters()))
    assert not reduced
    monkeypatch.setattr(torch._C, "_current_graph_task_id", lambda: 1)
    for times in (1, 2):
        backward(model(inputs))
        for parameter, gradient in zip(model.parameters(), expected, strict=True):
            assert parameter.grad is not None
            torch.testing.assert_close(parameter.grad, times * gradient)
        assert len(reduced) == times * len(expected)


def test_gradient_on_another_device_is_refused() -> None:
    weight = torch.ones(3, device="meta", requires_grad=True)

    class Misplaced(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, given: Tensor) -> Tensor:
            return given.sum()

        @staticmethod
        def backward(ctx: object, gradient: Tensor) -> Tensor:  # type: ignore[override]
            return torch.ones(3)

    with pytest.raises(AssertionError, match="a gradient on cpu of a tensor on meta"):
        backward(Misplaced.apply(weight))  # type: ignore[no-untyped-call]
