"""The bias of each estimator, exactly: its mean gradient over all outcomes of a small problem, and the true gradient.

    python benchmarks/gradient_bias.py [--group 4]

A softmax policy writes sequences of two tokens out of two, so that a group of G has 4^G outcomes, which are enumerated
with their probabilities. The rewards of the sequences are 0, 1, 0 and 1/2. Prints, for each estimator with the plain
policy gradient (`reinforce`), the length of the mean gradient relative to the true one, its cosine, and the relative
error of the best multiple: 0 for an estimator that is unbiased up to a factor. The last line is JSON.
"""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torl.algorithms.advantages import EstimatorInputs
from torl.algorithms.estimators import ESTIMATORS
from torl.algorithms.losses import LossInputs, reinforce_policy_loss
from torl.options import ChosenFrom

SEQUENCES = tuple(product(range(2), repeat=2))
REWARDS = {(0, 0): 0.0, (0, 1): 1.0, (1, 0): 0.0, (1, 1): 0.5}
LOGITS = ((0.3, -0.4), (-0.2, 0.5), (0.7, 0.1))  # of the first token, and of the second after each first one
WITHOUT_GRADES = (
    "grpo",
    "dr_grpo",
    "rloo",
    "reinforce_plus_plus",
    "reinforce_plus_plus_baseline",
    "gtpo",
    "maxrl",
    "gdpo",
)
"""The estimators that need rewards alone."""


def token_logprobs(logits: Tensor, sequence: Sequence[int]) -> Tensor:
    """Return the log-probabilities of both tokens, with gradient."""
    first, second = logits[0].log_softmax(-1), logits[1 + sequence[0]].log_softmax(-1)
    return torch.stack([first[sequence[0]], second[sequence[1]]])


def start() -> Tensor:
    """Return the logits, in float64."""
    return torch.tensor(LOGITS, dtype=torch.float64, requires_grad=True)


def true_gradient() -> Tensor:
    """Return the gradient of the expected reward."""
    logits = start()
    total = sum(token_logprobs(logits, sequence).sum().exp() * REWARDS[sequence] for sequence in SEQUENCES)
    assert isinstance(total, Tensor)
    (gradient,) = torch.autograd.grad(total, logits)
    return gradient


def groups(size: int) -> Iterator[tuple[float, tuple[tuple[int, ...], ...]]]:
    """Yield each outcome of a group with its probability."""
    logits = start().detach()
    probabilities = {each: float(token_logprobs(logits, each).sum().exp()) for each in SEQUENCES}
    for outcome in product(SEQUENCES, repeat=size):
        yield float(np.prod([probabilities[each] for each in outcome])), outcome


def mean_gradient(name: str, size: int, options: Mapping[str, Any] | None = None) -> Tensor:
    """Return the mean over all outcomes of minus the gradient of the loss: sums over tokens, averaged over a group."""
    estimator = ChosenFrom(ESTIMATORS, "estimator", positional_count=1).choose({"name": name, **(options or {})}).bind()
    logits = start()
    total = torch.zeros((), dtype=torch.float64)
    for probability, outcome in groups(size):
        inputs = EstimatorInputs(
            rewards_N=np.array([REWARDS[each] for each in outcome]),
            groups_N=["group"] * size,
            lengths_N=np.full(size, 2, np.int64),
            mask_M=np.ones(2 * size, np.bool_),
            turns_M=np.zeros(2 * size, np.int32),
        )
        advantages = torch.from_numpy(estimator(inputs).advantages_M.astype(np.float64))
        logprobs = torch.cat([token_logprobs(logits, each) for each in outcome])
        fixed, mask = logprobs.detach(), torch.ones(2 * size, dtype=torch.bool)
        sequences = torch.arange(size).repeat_interleave(2)
        loss = LossInputs(logprobs, fixed, advantages, mask, sequences, fixed, torch.zeros_like(fixed))
        total = total - probability * reinforce_policy_loss(loss).per_token.sum() / size
    (gradient,) = torch.autograd.grad(total, logits)
    return gradient


def compare(found: Tensor, true: Tensor) -> dict[str, float]:
    """Return length and cosine of a gradient relative to the true one, and the relative error of its best multiple."""
    length, cosine = float(found.norm() / true.norm()), float((found * true).sum() / (found.norm() * true.norm()))
    factor = float((found * true).sum() / (found * found).sum())
    return {"length": length, "cosine": cosine, "error": float((factor * found - true).norm() / true.norm())}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--group", type=int, default=4)
    size = parser.parse_args().group
    true = true_gradient()
    found = {name: compare(mean_gradient(name, size), true) for name in WITHOUT_GRADES}
    print("| estimator | length | cosine | error of the best multiple |\n|---|---|---|---|")
    for name, values in found.items():
        print(f"| `{name}` | {values['length']:.3f} | {values['cosine']:.5f} | {values['error']:.1e} |")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
