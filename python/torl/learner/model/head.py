"""A linear head that computes log-probabilities without storing the logits of a complete row.

Full-vocabulary logits of a long row do not fit in memory: 4,096 tokens with a vocabulary of 150 k take 2.5 GB in
float32, and the backward pass takes several times that. The head therefore computes logits for a part of the vocabulary
at a time, for all tokens of the row. Maximum, sum and entropy are accumulated over the parts, as in an online softmax,
and the gradient of each part of the weights is a single matrix product. Logits are stored for the backward pass up to a
limit; the others are recomputed there.
"""

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

EntropyMode: TypeAlias = Literal["off", "log", "train"]
"""Computation of the entropy, which takes a pass over all logits: not at all, without gradient, or with gradient."""

_MAX_PART_LOGITS = 1 << 24  # logits computed at a time: enough for matrix products at full speed


class LogprobHead(nn.Module):
    """A linear head with the parameters of the one that it replaces.

    It is called once for a row, regardless of the number of parts: under ZeRO-3 each call gathers the weights on all
    ranks, and ranks with different numbers of calls would deadlock.
    """

    bias: Tensor | None

    def __init__(self, head: nn.Linear, max_stored_logits: int, logits_dtype: torch.dtype | None = None) -> None:
        """Create a head.

        Args:
            head: Linear layer to replace.
            max_stored_logits: Maximum number of logits stored for the backward pass.
            logits_dtype: Precision that logits are rounded to. Defaults to the precision of the weights.
        """
        super().__init__()
        self.weight = head.weight
        self.register_parameter("bias", head.bias)
        self.max_stored_logits = max_stored_logits
        self.logits_dtype = logits_dtype

    def forward(
        self,
        hidden_KD: Tensor,
        target_K: Tensor | None = None,
        temperature: float = 1.0,
        entropy: EntropyMode = "log",
    ) -> Any:
        """Return the log-probability of each target and the entropy of its distribution, float32, shape (K,).

        Args:
            hidden_KD: Hidden states that predict the targets.
            target_K: Token ids. Without targets, the logits are returned, for calls by the model itself.
            temperature: Temperature by which logits are divided.
            entropy: Computation of the entropy, which is NaN if "off".
        """
        if target_K is None:
            return nn.functional.linear(hidden_KD, self.weight, self.bias)
        settings = temperature, self.max_stored_logits, entropy, self.logits_dtype or self.weight.dtype
        return _Logprobs.apply(hidden_KD, self.weight, self.bias, target_K, *settings)  # type: ignore[no-untyped-call]


class _Logprobs(torch.autograd.Function):
    """Log-probability and entropy with an explicit gradient.

    With z the logits over the temperature, p their softmax and H its entropy: d logprob / d z = [target] - p, and
    d H / d z = -p (log p + H).
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_KD: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        target_K: Tensor,
        temperature: float,
        max_stored_logits: int,
        entropy: EntropyMode,
        logits_dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        highest_K = hidden_KD.new_full((len(hidden_KD),), -torch.inf, dtype=torch.float32)
        sum_K, weighted_K, picked_K = (torch.zeros_like(highest_K) for _ in range(3))
        stored: list[Tensor] = []
        raised: Tensor | None = None
        capacity = max_stored_logits if any(ctx.needs_input_grad[:3]) else 0
        for part in _parts(hidden_KD, weight_VD, max_stored_logits):
            logits = _logits(hidden_KD, weight_VD, bias_V, part, logits_dtype)
            capacity -= logits.numel()
            if capacity >= 0:
                stored.append(logits)
            scaled = logits.float() if temperature == 1 else logits.float() / temperature
            _pick(scaled, target_K, part, picked_K)
            previous_K, highest_K = highest_K, torch.maximum(highest_K, scaled.amax(-1))
            rescaling_K = (previous_K - highest_K).exp_()
            if raised is None or raised.shape != scaled.shape:
                raised = torch.empty_like(scaled)  # reused: on a CPU an allocation costs as much as a pass over it
            torch.sub(scaled, highest_K[:, None], out=raised).exp_()
            sum_K.mul_(rescaling_K).add_(raised.sum(-1))
            if entropy != "off":
                weighted_K.mul_(rescaling_K).add_(raised.mul_(scaled).sum(-1))
        normalizer_K = highest_K + sum_K.log()
        entropy_K = normalizer_K - weighted_K / sum_K if entropy != "off" else torch.full_like(sum_K, torch.nan)
        ctx.save_for_backward(hidden_KD, weight_VD, bias_V, target_K, normalizer_K, entropy_K)
        ctx.temperature, ctx.max_stored_logits, ctx.trains_entropy = temperature, max_stored_logits, entropy == "train"
        ctx.stored, ctx.logits_dtype = stored, logits_dtype
        if not ctx.trains_entropy:
            ctx.mark_non_differentiable(entropy_K)
        return picked_K - normalizer_K, entropy_K

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, logprob_gradient_K: Tensor, entropy_gradient_K: Tensor) -> tuple[Tensor | None, ...]:
        hidden_KD, weight_VD, bias_V, target_K, normalizer_K, entropy_K = ctx.saved_tensors
        stored, ctx.stored = ctx.stored[::-1], []  # they are modified in place
        logprob_gradient_K = logprob_gradient_K / ctx.temperature
        entropy_gradient_K = entropy_gradient_K / ctx.temperature if ctx.trains_entropy else entropy_gradient_K
        hidden_gradient = torch.zeros_like(hidden_KD, dtype=torch.float32) if ctx.needs_input_grad[0] else None
        weight_gradient = torch.empty_like(weight_VD) if ctx.needs_input_grad[1] else None
        bias_gradient = torch.empty_like(bias_V) if bias_V is not None and ctx.needs_input_grad[2] else None
        for part in _parts(hidden_KD, weight_VD, ctx.max_stored_logits):
            logits = stored.pop() if stored else _logits(hidden_KD, weight_VD, bias_V, part, ctx.logits_dtype)
            scaled = logits.float() if ctx.temperature == 1 else logits.float().div_(ctx.temperature)
            distribution = scaled.sub_(normalizer_K[:, None])
            if ctx.trains_entropy:
                gradient = distribution.exp()
                slope = distribution.add_(entropy_K[:, None]).mul_(entropy_gradient_K[:, None])
                gradient.mul_(slope.add_(logprob_gradient_K[:, None]).neg_())
            else:
                gradient = distribution.exp_().mul_(-logprob_gradient_K[:, None])
            _add_picked(gradient, target_K, part, logprob_gradient_K)
            gradient = gradient.to(weight_VD.dtype)
            if hidden_gradient is not None:
                _add_product(hidden_gradient, gradient, weight_VD[part])
            if weight_gradient is not None:
                torch.mm(gradient.t(), hidden_KD, out=weight_gradient[part])
            if bias_gradient is not None:
                bias_gradient[part] = gradient.sum(0, dtype=torch.float32)
        hidden = None if hidden_gradient is None else hidden_gradient.to(hidden_KD.dtype)
        return hidden, weight_gradient, bias_gradient, None, None, None, None, None


def _parts(hidden_KD: Tensor, weight_VD: Tensor, max_stored_logits: int) -> Iterator[slice]:
    """Yield the parts of the vocabulary."""
    size = max(1, min(max_stored_logits, _MAX_PART_LOGITS) // max(1, len(hidden_KD)))
    for start in range(0, len(weight_VD), size):
        yield slice(start, min(start + size, len(weight_VD)))


def _logits(
    hidden_KD: Tensor, weight_VD: Tensor, bias_V: Tensor | None, part: slice, logits_dtype: torch.dtype
) -> Tensor:
    """Return logits in the precision that an inference engine rounds them to, before the temperature."""
    weight, bias = weight_VD[part], None if bias_V is None else bias_V[part]
    if logits_dtype == weight.dtype:
        return nn.functional.linear(hidden_KD, weight, bias)
    logits = _float32_product(hidden_KD, weight.t())
    return logits if bias is None else logits.add_(bias)


def _pick(values: Tensor, target_K: Tensor, part: slice, picked_K: Tensor) -> None:
    """Write the values of the targets in this part to `picked_K`. No shape depends on the data."""
    inside_K = (target_K >= part.start) & (target_K < part.stop)
    index_K = (target_K - part.start).clamp(0, part.stop - part.start - 1)
    torch.where(inside_K, values.gather(-1, index_K[:, None]).squeeze(-1), picked_K, out=picked_K)


def _add_picked(values: Tensor, target_K: Tensor, part: slice, added_K: Tensor) -> None:
    """Add `added_K` to the values of the targets in this part."""
    inside_K = (target_K >= part.start) & (target_K < part.stop)
    index_K = (target_K - part.start).clamp(0, part.stop - part.start - 1)
    values.scatter_add_(-1, index_K[:, None], torch.where(inside_K, added_K, 0.0)[:, None])


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add left @ right to `total` in float32, regardless of their precision, because there are many parts."""
    if left.is_cuda and left.dtype != torch.float32:
        total += _float32_product(left, right)
    else:
        total.addmm_(left.float(), right.float())


def _float32_product(left: Tensor, right: Tensor) -> Tensor:
    """Return left @ right in float32, not rounded to the precision of the operands."""
    if left.is_cuda and left.dtype != torch.float32:
        return torch.mm(left, right, out_dtype=torch.float32)
    return left.float() @ right.float()
