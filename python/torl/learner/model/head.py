"""From hidden states to log-probabilities: a model's linear head without the logits of a whole row.

Full-vocabulary logits of a long row do not fit in memory (4,096 tokens of a 150 k vocabulary are 2.5 GB in float32,
several times over in the backward pass). So the head computes them for a part of the vocabulary at a time, all tokens
of the row together. Maximum, sum and entropy go from part to part, as in an online softmax, and the gradient of a part
of the weights is one matrix product that is written once. What fits is kept for the backward pass, and the rest
computed again there.
"""

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

# What is made of the entropy: it costs a pass over all logits.
EntropyMode: TypeAlias = Literal["unused", "watched", "trained"]

# Logits in work at a time, at most: enough for matrix products at full speed.
_PART = 1 << 24


class LogprobHead(nn.Module):
    """A linear head, with the parameters of the one it takes the place of.

    It is called once for a row, however many parts the row is computed in: under ZeRO-3 each call gathers the weights
    on all ranks, which have different numbers of sampled tokens and would wait for each other for ever.
    """

    bias: Tensor | None

    def __init__(self, head: nn.Linear, max_stored_logits: int, logits_dtype: torch.dtype | None = None) -> None:
        """`logits_dtype`: what logits are rounded to; the precision of the weights when unset."""
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
        entropy: EntropyMode = "watched",
    ) -> Any:
        """Log-probability of each target after `temperature`, and the entropy there (NaN if it is "unused").

        Both float32, shape (K,); the entropy has a gradient where it is "trained". Without targets: the plain logits,
        as the model itself asks for them.
        """
        if target_K is None:
            return nn.functional.linear(hidden_KD, self.weight, self.bias)
        settings = temperature, self.max_stored_logits, entropy, self.logits_dtype or self.weight.dtype
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
        max_stored_logits: int,
        entropy: EntropyMode,
        logits_dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        highest_K = hidden_KD.new_full((len(hidden_KD),), -torch.inf, dtype=torch.float32)
        sum_K, weighted_K, picked_K = (torch.zeros_like(highest_K) for _ in range(3))
        kept: list[Tensor] = []
        raised: Tensor | None = None
        keeps = max_stored_logits if any(ctx.needs_input_grad[:3]) else 0
        for part in _parts(hidden_KD, weight_VD, max_stored_logits):
            logits = _logits(hidden_KD, weight_VD, bias_V, part, logits_dtype)
            keeps -= logits.numel()
            if keeps >= 0:
                kept.append(logits)
            scaled = logits.float() if temperature == 1 else logits.float() / temperature
            _pick(scaled, target_K, part, picked_K)
            before_K, highest_K = highest_K, torch.maximum(highest_K, scaled.amax(-1))
            shrinking_K = (before_K - highest_K).exp_()
            if raised is None or raised.shape != scaled.shape:
                raised = torch.empty_like(scaled)  # once: on a CPU fresh memory costs as much as a pass over it
            torch.sub(scaled, highest_K[:, None], out=raised).exp_()
            sum_K.mul_(shrinking_K).add_(raised.sum(-1))
            if entropy != "unused":
                weighted_K.mul_(shrinking_K).add_(raised.mul_(scaled).sum(-1))
        normalizer_K = highest_K + sum_K.log()
        entropy_K = normalizer_K - weighted_K / sum_K if entropy != "unused" else torch.full_like(sum_K, torch.nan)
        ctx.save_for_backward(hidden_KD, weight_VD, bias_V, target_K, normalizer_K, entropy_K)
        ctx.temperature, ctx.max_stored_logits, ctx.trains_entropy = (
            temperature,
            max_stored_logits,
            entropy == "trained",
        )
        ctx.kept, ctx.logits_dtype = kept, logits_dtype
        if not ctx.trains_entropy:
            ctx.mark_non_differentiable(entropy_K)
        return picked_K - normalizer_K, entropy_K

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, logprob_gradient_K: Tensor, entropy_gradient_K: Tensor) -> tuple[Tensor | None, ...]:
        hidden_KD, weight_VD, bias_V, target_K, normalizer_K, entropy_K = ctx.saved_tensors
        kept, ctx.kept = ctx.kept[::-1], []  # they are worked on in place
        logprob_gradient_K = logprob_gradient_K / ctx.temperature
        entropy_gradient_K = entropy_gradient_K / ctx.temperature if ctx.trains_entropy else entropy_gradient_K
        hidden_gradient = torch.zeros_like(hidden_KD, dtype=torch.float32) if ctx.needs_input_grad[0] else None
        weight_gradient = torch.empty_like(weight_VD) if ctx.needs_input_grad[1] else None
        bias_gradient = torch.empty_like(bias_V) if bias_V is not None and ctx.needs_input_grad[2] else None
        for part in _parts(hidden_KD, weight_VD, ctx.max_stored_logits):
            logits = kept.pop() if kept else _logits(hidden_KD, weight_VD, bias_V, part, ctx.logits_dtype)
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
    """Parts of the vocabulary."""
    size = max(1, min(max_stored_logits, _PART) // max(1, len(hidden_KD)))
    for start in range(0, len(weight_VD), size):
        yield slice(start, min(start + size, len(weight_VD)))


def _logits(
    hidden_KD: Tensor, weight_VD: Tensor, bias_V: Tensor | None, part: slice, logits_dtype: torch.dtype
) -> Tensor:
    """In the precision to which an inference engine rounds them as well before the temperature."""
    weight, bias = weight_VD[part], None if bias_V is None else bias_V[part]
    if logits_dtype == weight.dtype:
        return nn.functional.linear(hidden_KD, weight, bias)
    logits = _float32_product(hidden_KD, weight.t())
    return logits if bias is None else logits.add_(bias)


def _pick(values: Tensor, target_K: Tensor, part: slice, picked_K: Tensor) -> None:
    """Put the values of the targets that lie in this part into `picked_K`. No shape depends on the data."""
    inside_K = (target_K >= part.start) & (target_K < part.stop)
    place_K = (target_K - part.start).clamp(0, part.stop - part.start - 1)
    torch.where(inside_K, values.gather(-1, place_K[:, None]).squeeze(-1), picked_K, out=picked_K)


def _add_picked(values: Tensor, target_K: Tensor, part: slice, added_K: Tensor) -> None:
    """Add to the values of the targets that lie in this part."""
    inside_K = (target_K >= part.start) & (target_K < part.stop)
    place_K = (target_K - part.start).clamp(0, part.stop - part.start - 1)
    values.scatter_add_(-1, place_K[:, None], torch.where(inside_K, added_K, 0.0)[:, None])


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """total += left @ right, summed in float32 whatever their precision: the parts are many."""
    if left.is_cuda and left.dtype != torch.float32:
        total += _float32_product(left, right)
    else:
        total.addmm_(left.float(), right.float())


def _float32_product(left: Tensor, right: Tensor) -> Tensor:
    """left @ right, not rounded to the precision of the two."""
    if left.is_cuda and left.dtype != torch.float32:
        return torch.mm(left, right, out_dtype=torch.float32)
    return left.float() @ right.float()
