"""Triton kernels of the head: one pass over a part of the logits in each direction.

Requires Triton, which torch's builds for CUDA install. Sums are float32.
"""

import triton
import triton.language as tl
from torch import Tensor

_MAX_BLOCK = 4096  # logits of a row that are in registers at a time
_MIN_LOGIT = tl.constexpr(-1e30)  # finite, so that impossible tokens cause no infinity minus infinity


def accumulate(
    logits: Tensor, target_K: Tensor, start: int, temperature: float, with_entropy: bool, statistics_4K: Tensor
) -> None:
    """Add a part of the vocabulary to the statistics of each row (`torl.learner.model.head`).

    Args:
        logits: Logits of the part, shape (K, part), float32 or bfloat16, with contiguous rows.
        target_K: Token ids.
        start: First token id of the part.
        temperature: Temperature by which logits are divided.
        with_entropy: Whether the weighted sum is computed.
        statistics_4K: Maximum, sum of exponentials, weighted sum and logit of the target, float32. Modified.
    """
    rows, size = logits.shape
    block = min(_MAX_BLOCK, triton.next_power_of_2(size))
    _accumulate[(rows,)](
        logits, target_K, statistics_4K, rows, start, size, logits.stride(0), temperature, with_entropy, BLOCK=block
    )


def differentiate(
    logits: Tensor,
    target_K: Tensor,
    start: int,
    temperature: float,
    normalizer_K: Tensor,
    entropy_K: Tensor,
    logprob_gradient_K: Tensor,
    entropy_gradient_K: Tensor | None,
) -> None:
    """Replace a part of the logits by the gradient with respect to them.

    Args:
        logits: Logits of the part, as for `accumulate`. Modified.
        target_K: Token ids.
        start: First token id of the part.
        temperature: Temperature by which logits are divided.
        normalizer_K: Logarithm of the sum of exponentials.
        entropy_K: Entropy.
        logprob_gradient_K: Gradient by the log-probabilities, divided by the temperature.
        entropy_gradient_K: Gradient by the entropies, divided by the temperature. None if entropies are not trained.
    """
    rows, size = logits.shape
    block = min(_MAX_BLOCK, triton.next_power_of_2(size))
    trains_entropy = entropy_gradient_K is not None
    _differentiate[(rows, triton.cdiv(size, block))](
        logits,
        target_K,
        normalizer_K,
        entropy_K,
        logprob_gradient_K,
        entropy_gradient_K if trains_entropy else logprob_gradient_K,
        start,
        size,
        logits.stride(0),
        temperature,
        trains_entropy,
        BLOCK=block,
    )


@triton.jit(do_not_specialize=["start"])  # type: ignore[untyped-decorator]
def _accumulate(  # type: ignore[no-untyped-def]
    logits,
    target_K,
    statistics_4K,
    rows,
    start,
    size,
    stride,
    temperature,
    WITH_ENTROPY: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    logits += row * stride
    statistics = statistics_4K + row
    highest = tl.load(statistics)
    total = tl.load(statistics + rows)
    weighted = tl.load(statistics + 2 * rows)
    for first in range(0, size, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        logit = tl.load(logits + columns, mask=columns < size, other=-float("inf")).to(tl.float32)
        scaled = tl.div_rn(logit, temperature)
        previous = highest
        highest = tl.maximum(previous, tl.max(scaled, 0))
        shift = tl.maximum(highest, _MIN_LOGIT)
        rescaling = tl.exp(previous - shift)
        raised = tl.exp(scaled - shift)
        total = total * rescaling + tl.sum(raised, 0)
        if WITH_ENTROPY:
            weighted = weighted * rescaling + tl.sum(raised * tl.maximum(scaled, _MIN_LOGIT), 0)
    tl.store(statistics, highest)
    tl.store(statistics + rows, total)
    tl.store(statistics + 2 * rows, weighted)
    column = tl.load(target_K + row) - start
    if (column >= 0) & (column < size):
        tl.store(statistics + 3 * rows, tl.div_rn(tl.load(logits + column).to(tl.float32), temperature))


@triton.jit(do_not_specialize=["start"])  # type: ignore[untyped-decorator]
def _differentiate(  # type: ignore[no-untyped-def]
    logits,
    target_K,
    normalizer_K,
    entropy_K,
    logprob_gradient_K,
    entropy_gradient_K,
    start,
    size,
    stride,
    temperature,
    TRAINS_ENTROPY: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    pointers = logits + row * stride + columns
    logit = tl.load(pointers, mask=columns < size, other=-float("inf")).to(tl.float32)
    logprob = tl.maximum(tl.div_rn(logit, temperature) - tl.load(normalizer_K + row), _MIN_LOGIT)
    upstream = tl.load(logprob_gradient_K + row)
    slope = upstream
    if TRAINS_ENTROPY:
        slope += (logprob + tl.load(entropy_K + row)) * tl.load(entropy_gradient_K + row)
    column = tl.load(target_K + row) - start
    gradient = tl.where(columns == column, upstream, 0.0) - tl.exp(logprob) * slope
    tl.store(pointers, gradient.to(logits.dtype.element_ty), mask=columns < size)
