"""From hidden states to log-probabilities: a model's linear head without the logits of a whole row.

Full-vocabulary logits of a long row do not fit in memory (4,096 tokens of a 150 k vocabulary are 2.5 GB in float32,
several times over in the backward pass). So the head computes them for a few tokens at a time, keeps what it is asked
for, and computes them again in the backward pass.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class LogprobHead(nn.Module):
    """A linear head, with the parameters of the one it takes the place of.

    It is called once for a row, however many pieces the row is computed in: under ZeRO-3 each call gathers the weights
    on all ranks, which have different numbers of sampled tokens and would wait for each other for ever.
    """

    bias: Tensor | None

    def __init__(self, head: nn.Linear, logits_at_once: int) -> None:
        super().__init__()
        self.weight = head.weight
        self.register_parameter("bias", head.bias)
        self.logits_at_once = logits_at_once

    def forward(
        self,
        hidden_KD: Tensor,
        target_K: Tensor | None = None,
        temperature: float = 1.0,
        entropy_gradient: bool = False,
    ) -> Any:
        """Log-probability of each target after `temperature`, and the entropy there (with a gradient if asked for).

        Both float32, shape (K,). Without targets: the plain logits, as the model itself asks for them.
        """
        if target_K is None:
            return nn.functional.linear(hidden_KD, self.weight, self.bias)
        settings = temperature, self.logits_at_once, entropy_gradient
        return _Logprobs.apply(hidden_KD, self.weight, self.bias, target_K, *settings)  # type: ignore[no-untyped-call]


class _Logprobs(torch.autograd.Function):
    """With z the logits over the temperature, p their softmax and H its entropy:

    d logprob / d z = [target] - p, and d H / d z = -p (log p + H).
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_KD: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        target_K: Tensor,
        temperature: float,
        logits_at_once: int,
        entropy_gradient: bool,
    ) -> tuple[Tensor, Tensor]:
        logprob_K, normalizer_K, entropy_K = (hidden_KD.new_empty(len(hidden_KD), dtype=torch.float32) for _ in "123")
        for part in _parts(hidden_KD, weight_VD, logits_at_once):
            logits = _logits(hidden_KD[part], weight_VD, bias_V, temperature)
            normalizer_K[part] = torch.logsumexp(logits, -1)
            distribution = logits.sub_(normalizer_K[part, None])
            logprob_K[part] = distribution.gather(-1, target_K[part, None]).squeeze(-1)
            entropy_K[part] = -distribution.exp().mul_(distribution).sum(-1)
        ctx.save_for_backward(hidden_KD, weight_VD, bias_V, target_K, normalizer_K, entropy_K)
        ctx.temperature, ctx.logits_at_once, ctx.entropy_gradient = temperature, logits_at_once, entropy_gradient
        if not entropy_gradient:
            ctx.mark_non_differentiable(entropy_K)
        return logprob_K, entropy_K

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, logprob_gradient_K: Tensor, entropy_gradient_K: Tensor) -> tuple[Tensor | None, ...]:
        hidden_KD, weight_VD, bias_V, target_K, normalizer_K, entropy_K = ctx.saved_tensors
        hidden_gradient = torch.empty_like(hidden_KD) if ctx.needs_input_grad[0] else None
        weight_gradient = _float_zeros(weight_VD) if ctx.needs_input_grad[1] else None
        bias_gradient = _float_zeros(bias_V) if bias_V is not None and ctx.needs_input_grad[2] else None
        for part in _parts(hidden_KD, weight_VD, ctx.logits_at_once):
            logits = _logits(hidden_KD[part], weight_VD, bias_V, ctx.temperature)
            distribution = logits.sub_(normalizer_K[part, None])
            gradient = distribution.exp()  # by z, in the end
            if ctx.entropy_gradient:
                slope = distribution.add_(entropy_K[part, None]).mul_(entropy_gradient_K[part, None])
                gradient.mul_(slope.add_(logprob_gradient_K[part, None]).neg_())
            else:
                gradient.mul_(-logprob_gradient_K[part, None])
            gradient.scatter_add_(-1, target_K[part, None], logprob_gradient_K[part, None])
            gradient = gradient.div_(ctx.temperature).to(weight_VD.dtype)
            if hidden_gradient is not None:
                hidden_gradient[part] = gradient @ weight_VD
            if weight_gradient is not None:
                _add_product(weight_gradient, gradient.t(), hidden_KD[part])
            if bias_gradient is not None:
                bias_gradient += gradient.sum(0, dtype=torch.float32)
        return hidden_gradient, _as(weight_VD, weight_gradient), _as(bias_V, bias_gradient), None, None, None, None


def _parts(hidden_KD: Tensor, weight_VD: Tensor, logits_at_once: int) -> Iterator[slice]:
    size = max(1, logits_at_once // len(weight_VD))
    for start in range(0, len(hidden_KD), size):
        yield slice(start, start + size)


def _logits(hidden_KD: Tensor, weight_VD: Tensor, bias_V: Tensor | None, temperature: float) -> Tensor:
    """In float32, rounded to the model's precision before the temperature, as an inference engine does."""
    return nn.functional.linear(hidden_KD, weight_VD, bias_V).float().div_(temperature)


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """total += left @ right, summed in float32 whatever their precision: a row's gradient is a sum of many pieces."""
    if left.is_cuda and left.dtype != torch.float32:
        total += torch.mm(left, right, out_dtype=torch.float32)
    else:
        total.addmm_(left.float(), right.float())


def _float_zeros(like: Tensor) -> Tensor:
    return torch.zeros_like(like, dtype=torch.float32)


def _as(parameter: Tensor | None, gradient: Tensor | None) -> Tensor | None:
    return None if parameter is None or gradient is None else gradient.to(parameter.dtype)
