"""Run the head with its Triton kernels in Triton's interpreter, and with torch, and print their distances as JSON.

A separate program: the interpreter must be chosen before Triton is imported.
"""

import itertools
import json
import os

os.environ["TRITON_INTERPRET"] = "1"

import torch
from torch import Tensor, nn

from torl.learner.model import head, head_kernels
from torl.learner.model.head import EntropyMode, LogprobHead

TOKENS, WIDTH = 3, 16


def outputs(
    dtype: torch.dtype,
    logits_dtype: torch.dtype,
    vocabulary: int,
    stored: int,
    entropy: EntropyMode,
    impossible: bool,
    tokens: int = TOKENS,
) -> list[Tensor]:
    """Log-probabilities, entropies, and gradients by hidden states, weights and biases."""
    generator = torch.Generator().manual_seed(0)
    linear = nn.Linear(WIDTH, vocabulary).to(dtype)
    with torch.no_grad():
        for parameter in linear.parameters():
            parameter.normal_(generator=generator)
        if impossible:  # the first part, the last tokens, and one that is sampled
            linear.bias[: vocabulary // 2] = -torch.inf
            linear.bias[-3:] = -torch.inf
    hidden = torch.randn(tokens, WIDTH, generator=generator).to(dtype).requires_grad_()
    target = torch.randint(vocabulary // 2, vocabulary - 3, (tokens,), generator=generator)
    target[:1] = 0 if impossible else vocabulary - 1
    upstream = torch.randn(2, tokens, generator=generator)
    found = LogprobHead(linear, stored, logits_dtype)(hidden, target, 0.6, entropy)
    used = [0, 1] if entropy == "train" else [0]
    inputs = [hidden, *linear.parameters()]
    gradients = torch.autograd.grad([found[each] for each in used], inputs, [upstream[each] for each in used])
    return [found[0], *([] if entropy == "off" else [found[1]]), *gradients]


def distance(found: Tensor, expected: Tensor) -> float:
    """Relative distance of the finite elements. NaN where others are finite is infinitely far."""
    finite = expected.isfinite()
    if found.shape == expected.shape and not expected.any():
        return float(found.detach().abs().sum())
    if not torch.equal(found.isfinite(), finite) or not torch.equal(found[~finite], expected[~finite]):
        return float("inf")
    return float((found - expected)[finite].detach().double().norm() / expected[finite].detach().double().norm())


def main() -> None:
    """Print the largest distance of each case."""
    bfloat16, float32 = torch.bfloat16, torch.float32
    precisions = {"float32": (float32, float32), "bfloat16": (bfloat16, bfloat16), "mixed": (bfloat16, float32)}
    shapes: dict[str, tuple[int, int, EntropyMode, bool] | tuple[int, int, EntropyMode, bool, int]] = {
        "odd parts, impossible tokens": (57, 24 * TOKENS, "train", True),
        "one part": (64, 1 << 20, "log", False),
        "recomputed parts": (35, 20 * TOKENS, "off", False),
        "a last part of one": (41, 40, "train", False, 2),
        "no tokens": (35, 1 << 20, "train", False, 0),
    }
    cases = [
        (f"{precision}, {shape}", (*dtypes, *settings))
        for (precision, dtypes), (shape, settings) in itertools.product(precisions.items(), shapes.items())
    ]
    expected = [outputs(*arguments) for _, arguments in cases]
    head_kernels._MAX_BLOCK = 16  # several blocks in a part
    head._passes = lambda _: head._KernelPasses()
    head._accumulate_on_gpu = head_kernels.accumulate
    head._differentiate_on_gpu = head_kernels.differentiate
    found = [outputs(*arguments) for _, arguments in cases]
    distances = [max(map(distance, *pair)) for pair in zip(found, expected, strict=True)]
    print(json.dumps(dict(zip((name for name, _ in cases), distances, strict=True))))


if __name__ == "__main__":
    main()
