"""A linear head that computes log-probabilities without storing the logits of a complete row.

Full-vocabulary logits of a long row do not fit in memory: 4,096 tokens with a vocabulary of 150 k take 2.5 GB in
float32, and the backward pass takes several times that. The head therefore computes logits for a part of the vocabulary
at a time, for all tokens of the row. Maximum, sum and entropy are accumulated over the parts, as in an online softmax,
and the gradient of each part of the weights is a single matrix product. Logits are stored for the backward pass up to a
limit; the others are recomputed there. On a GPU, a kernel reads a part once in each direction (`head_kernels`). On a
CPU, torch passes over it several times.
"""

from collections.abc import Iterator
from importlib import import_module
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from torl.base.errors import LearnerError

EntropyMode: TypeAlias = Literal["off", "log", "train"]
"""Computation of the entropy, which takes a pass over all logits: not at all, without gradient, or with gradient."""

_MAX_PART_LOGITS = 1 << 24  # logits computed at a time: enough for matrix products at full speed
_PART_MULTIPLE = 128  # tokens of the vocabulary: rows of logits are aligned for the GPU's matrix products
_MIN_LOGIT = -1e30  # finite, so that impossible tokens cause no infinity minus infinity


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
        target_K = target_K.contiguous()
        statistics_4K = hidden_KD.new_zeros((4, len(hidden_KD)), dtype=torch.float32)
        statistics_4K[0] = -torch.inf
        stored: list[Tensor] = []
        capacity = max_stored_logits if any(ctx.needs_input_grad[:3]) else 0
        passes = _passes(hidden_KD.device)
        for part in _parts(hidden_KD, weight_VD, max_stored_logits):
            logits = _logits(hidden_KD, weight_VD, bias_V, part, logits_dtype)
            capacity -= logits.numel()
            if capacity >= 0:
                stored.append(logits)
            passes.accumulate(logits, target_K, part.start, temperature, entropy != "off", statistics_4K)
        highest_K, sum_K, weighted_K, picked_K = statistics_4K
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
        passes = _passes(hidden_KD.device)
        for part in _parts(hidden_KD, weight_VD, ctx.max_stored_logits):
            logits = stored.pop() if stored else _logits(hidden_KD, weight_VD, bias_V, part, ctx.logits_dtype)
            gradient = passes.differentiate(
                logits,
                target_K,
                part.start,
                ctx.temperature,
                normalizer_K,
                entropy_K,
                logprob_gradient_K,
                entropy_gradient_K if ctx.trains_entropy else None,
            ).to(weight_VD.dtype)
            if hidden_gradient is not None:
                _add_product(hidden_gradient, gradient, weight_VD[part])
            if weight_gradient is not None:
                torch.mm(gradient.t(), hidden_KD, out=weight_gradient[part])
            if bias_gradient is not None:
                bias_gradient[part] = gradient.sum(0, dtype=torch.float32)
        hidden = None if hidden_gradient is None else hidden_gradient.to(hidden_KD.dtype)
        return hidden, weight_gradient, bias_gradient, None, None, None, None, None


def _parts(hidden_KD: Tensor, weight_VD: Tensor, max_stored_logits: int) -> Iterator[slice]:
    """Yield the parts of the vocabulary, whose sizes are multiples of `_PART_MULTIPLE` if they are larger."""
    size = max(1, min(max_stored_logits, _MAX_PART_LOGITS) // max(1, len(hidden_KD)))
    size -= size % _PART_MULTIPLE if size > _PART_MULTIPLE else 0
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


class _TorchPasses:
    """The passes over a part of the logits in torch, for any device. `head_kernels` describes the arguments."""

    def __init__(self) -> None:
        self._raised: Tensor | None = None  # reused: on a CPU an allocation costs as much as a pass over it

    def accumulate(
        self,
        logits: Tensor,
        target_K: Tensor,
        start: int,
        temperature: float,
        with_entropy: bool,
        statistics_4K: Tensor,
    ) -> None:
        highest_K, sum_K, weighted_K, picked_K = statistics_4K
        scaled = logits.float() if temperature == 1 else logits.float() / temperature
        inside_K, index_K = _inside(target_K, start, logits)
        torch.where(inside_K, scaled.gather(-1, index_K).squeeze(-1), picked_K, out=picked_K)
        previous_K = highest_K.clone()
        torch.maximum(highest_K, scaled.amax(-1), out=highest_K)
        shift_K = highest_K.clamp(min=_MIN_LOGIT)
        rescaling_K = (previous_K - shift_K).exp_()
        if self._raised is None or self._raised.shape != scaled.shape:
            self._raised = torch.empty_like(scaled)
        raised = torch.sub(scaled, shift_K[:, None], out=self._raised).exp_()
        sum_K.mul_(rescaling_K).add_(raised.sum(-1))
        if with_entropy:
            # The product of an impossible token is zero times infinity.
            weighted_K.mul_(rescaling_K).add_(raised.mul_(scaled).nansum(-1))

    def differentiate(
        self,
        logits: Tensor,
        target_K: Tensor,
        start: int,
        temperature: float,
        normalizer_K: Tensor,
        entropy_K: Tensor,
        logprob_gradient_K: Tensor,
        entropy_gradient_K: Tensor | None,
    ) -> Tensor:
        scaled = logits.float() if temperature == 1 else logits.float().div_(temperature)
        distribution = scaled.sub_(normalizer_K[:, None])
        if entropy_gradient_K is not None:
            gradient = distribution.exp()
            slope = distribution.clamp_(min=_MIN_LOGIT).add_(entropy_K[:, None]).mul_(entropy_gradient_K[:, None])
            gradient.mul_(slope.add_(logprob_gradient_K[:, None]).neg_())
        else:
            gradient = distribution.exp_().mul_(-logprob_gradient_K[:, None])
        inside_K, index_K = _inside(target_K, start, logits)
        return gradient.scatter_add_(-1, index_K, torch.where(inside_K, logprob_gradient_K, 0.0)[:, None])


class _KernelPasses:
    """The passes in one kernel each."""

    def accumulate(self, *arguments: Any) -> None:
        _accumulate_on_gpu(*arguments)

    def differentiate(self, logits: Tensor, *arguments: Any) -> Tensor:
        _differentiate_on_gpu(logits, *arguments)
        return logits


def _passes(device: torch.device) -> _TorchPasses | _KernelPasses:
    return _KernelPasses() if device.type == "cuda" else _TorchPasses()


# Operators of torch, so that tensors without data can pass through them.
@torch.library.custom_op("torl::accumulate_logits", mutates_args={"statistics_4K"}, device_types="cuda")
def _accumulate_on_gpu(
    logits: Tensor, target_K: Tensor, start: int, temperature: float, with_entropy: bool, statistics_4K: Tensor
) -> None:
    _kernels().accumulate(logits, target_K, start, temperature, with_entropy, statistics_4K)


@torch.library.custom_op("torl::differentiate_logits", mutates_args={"logits"}, device_types="cuda")
def _differentiate_on_gpu(
    logits: Tensor,
    target_K: Tensor,
    start: int,
    temperature: float,
    normalizer_K: Tensor,
    entropy_K: Tensor,
    logprob_gradient_K: Tensor,
    entropy_gradient_K: Tensor | None,
) -> None:
    gradients = logprob_gradient_K, entropy_gradient_K
    _kernels().differentiate(logits, target_K, start, temperature, normalizer_K, entropy_K, *gradients)


@_accumulate_on_gpu.register_fake
@_differentiate_on_gpu.register_fake
def _compute_nothing(*_: Any) -> None:
    pass


def _kernels() -> Any:
    try:
        return import_module("torl.learner.model.head_kernels")  # it imports Triton, which a CPU lacks
    except ImportError as error:
        raise LearnerError(
            "training on a GPU requires Triton, which torch's builds for CUDA install, and it cannot be imported "
            f"({error}): pip install triton"
        ) from error


def _inside(target_K: Tensor, start: int, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return whether targets are in the part that begins at `start`, and a column (K, 1). No shape depends on data."""
    index_K = target_K - start
    size = logits.shape[-1]
    return (index_K >= 0) & (index_K < size), index_K.clamp(0, size - 1)[:, None]


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
