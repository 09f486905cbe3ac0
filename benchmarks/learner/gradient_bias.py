"""The bias of each estimator and loss, exactly: its mean gradient over all outcomes of a small problem.

    python -m benchmarks.learner.gradient_bias [--group 4]

A softmax policy writes sequences of two tokens out of two, so that a group of G has 4^G outcomes, which are enumerated
with their probabilities. The rewards of the sequences are 0, 1, 0 and 1/2. Prints the length of the mean gradient
relative to the true one, its cosine, and the relative error of the best multiple: 0 for a gradient that is unbiased up
to a factor. The first table has each estimator with the plain policy gradient (`reinforce`).

The second table has each loss with `rloo` in groups of 2, on sequences that an older policy sampled: its logits lie a
step of a given length back along the true gradient. A loss alone has the older policy's log-probabilities as the old
ones, as in the later updates of a step. With an importance correction, the old ones are current, as in the first update
on a stale batch. The last line is JSON.
"""

import argparse
import json
from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torl.base.options import Choice, ChosenFrom
from torl.base.types import Float32Array
from torl.components.algorithms import ESTIMATORS
from torl.components.algorithms.advantages import EstimatorInputs
from torl.components.algorithms.losses import CORRECTIONS, POLICY_LOSSES, BatchTokens, CorrectionInputs, LossInputs
from torl.components.algorithms.losses.entropy_control import check_batch_values
from torl.components.algorithms.requirements import requirements_of

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
    "optimal_token_baseline",
)
"""The estimators that need no graded trajectories."""
DISTANCES = (0.1, 0.5)
"""Lengths of the step between the policy that sampled and the current one."""
Section = Mapping[str, Any]
LOSSES: Mapping[str, tuple[Section, Section | None]] = {
    **{f"`{name}`": ({"name": name}, None) for name in POLICY_LOSSES if name != "sequence_masked"},
    "`sequence_masked`, 0.1": ({"name": "sequence_masked", "threshold": 0.1}, None),
    **{f"`reinforce`, `{name}`": ({"name": "reinforce"}, {"name": name}) for name in CORRECTIONS},
}
"""The loss and the importance correction of each row of the second table."""


def distributions(logits: Tensor) -> Tensor:
    """Return the log-probabilities of all tokens at both places of each sequence, with gradient, shape (4, 2, 2)."""
    return torch.stack([logits[[0, 1 + sequence[0]]] for sequence in SEQUENCES]).log_softmax(-1)


def token_logprobs(logits: Tensor) -> Tensor:
    """Return the log-probabilities of both tokens of each sequence, with gradient, shape (4, 2)."""
    return distributions(logits).gather(-1, torch.tensor(SEQUENCES)[..., None])[..., 0]


def start() -> Tensor:
    """Return the logits, in float64."""
    return torch.tensor(LOGITS, dtype=torch.float64, requires_grad=True)


def true_gradient() -> Tensor:
    """Return the gradient of the expected reward."""
    logits = start()
    rewards = torch.tensor([REWARDS[each] for each in SEQUENCES], dtype=torch.float64)
    (gradient,) = torch.autograd.grad((token_logprobs(logits).sum(-1).exp() * rewards).sum(), logits)
    return gradient


def older_logits(distance: float) -> Tensor:
    """Return the logits a step of length `distance` back along the true gradient."""
    gradient = true_gradient()
    return start().detach() - distance * gradient / gradient.norm()


def groups(size: int, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return the outcomes of a group, (4^size, size) indices of sequences, and their probabilities, (4^size,)."""
    rows = torch.cartesian_prod(*[torch.arange(len(SEQUENCES))] * size).reshape(-1, size)
    return rows, token_logprobs(logits).detach().sum(-1)[rows].sum(-1).exp()


def mean_gradient(
    estimator: Section,
    size: int,
    *,
    loss: Section | None = None,
    correction: Section | None = None,
    distance: float = 0.0,
) -> Tensor:
    """Return the mean over all outcomes of minus the gradient of the loss: sums over tokens, averaged over a group.

    Args:
        estimator: Advantage estimator.
        size: Number of members of a group.
        loss: Policy loss. Unset is `reinforce`.
        correction: Importance correction.
        distance: Length of the step between the policy that sampled and the current one.
    """
    estimate = ChosenFrom(ESTIMATORS, "estimator", positional_count=1).choose(estimator).bind()
    policy_loss = ChosenFrom(POLICY_LOSSES, "loss", positional_count=1).choose(loss or {"name": "reinforce"})
    logits, older = start(), older_logits(distance)
    rows, probabilities = groups(size, older)
    advantages = np.stack([estimate(inputs_of(group, distributions(older).detach())).advantages_M for group in rows])
    logprobs, sampled = (token_logprobs(each)[rows].flatten() for each in (logits, older))
    old = sampled if correction is None else logprobs.detach()
    entropies = -(distributions(older).exp() * distributions(older)).sum(-1)[rows].flatten()
    mask, sequences = torch.ones(len(logprobs), dtype=torch.bool), torch.arange(rows.numel()).repeat_interleave(2)
    inputs = LossInputs(
        logprobs,
        old,
        torch.from_numpy(advantages.astype(np.float64)).flatten(),
        mask,
        sequences,
        sampled,
        entropies,
        batch_values=batch_values(policy_loss, advantages, sampled, entropies),
    )
    per_token = policy_loss.bind()(inputs).per_token
    if correction is not None:
        weigh = ChosenFrom(CORRECTIONS, "correction", positional_count=1).choose(correction).bind()
        per_token = per_token * weigh(CorrectionInputs(old, sampled, mask, sequences))
    total = (probabilities * per_token.reshape(len(rows), -1).sum(-1)).sum() / size
    (gradient,) = torch.autograd.grad(-total, logits)
    return gradient


def inputs_of(group: Tensor, logprobs: Tensor) -> EstimatorInputs:
    """Return a group of sequences, each in one turn.

    Args:
        group: Indices of the sequences.
        logprobs: Log-probabilities of all tokens at both places of each sequence, shape (4, 2, 2).
    """
    sequences = [SEQUENCES[index] for index in group]
    sampled = logprobs[group].gather(-1, torch.tensor(sequences)[..., None])
    return EstimatorInputs(
        rewards_N=np.array([REWARDS[sequence] for sequence in sequences]),
        groups_N=["group"] * len(group),
        lengths_N=np.full(len(group), 2, np.int64),
        mask_M=np.ones(2 * len(group), np.bool_),
        turns_M=np.zeros(2 * len(group), np.int32),
        old_logprobs_M=sampled.float().flatten().numpy(),
        collision_probs_M=(2 * logprobs[group]).exp().sum(-1).float().flatten().numpy(),
    )


def batch_values(loss: Choice[Any], advantages: Float32Array, sampled: Tensor, entropies: Tensor) -> Tensor | None:
    """Return the numbers of a loss that depend on the batch, which is the group; None for other losses."""
    function = requirements_of(loss.target).batch_values
    if function is None:
        return None
    helper, tokens = loss.bind_helper(function, check_batch_values), advantages.shape[1]
    q, h = (each.float().numpy().reshape(-1, tokens) for each in (sampled, entropies))
    sequences = np.arange(tokens) // 2
    values = [
        helper(BatchTokens(a, q[index], sequences, seed=index, old_logprobs_K=q[index], entropies_K=h[index]))
        for index, a in enumerate(advantages)
    ]
    return torch.from_numpy(np.concatenate(values)).double()


def compare(found: Tensor, true: Tensor) -> dict[str, float]:
    """Return length and cosine of a gradient relative to the true one, and the relative error of its best multiple."""
    length, product_ = float(found.norm() / true.norm()), float((found * true).sum())
    if length < 1e-12:  # every token is clipped
        return {"length": 0.0, "cosine": 0.0, "error": 1.0}
    factor = product_ / float((found * found).sum())
    cosine = product_ / float(found.norm() * true.norm())
    return {"length": length, "cosine": cosine, "error": float((factor * found - true).norm() / true.norm())}


def estimator_table(size: int) -> list[str]:
    """Return the lines of the first table."""
    true, lines = true_gradient(), ["| estimator | length | cosine | error of the best multiple |", "|---|---|---|---|"]
    for name in WITHOUT_GRADES:
        values = compare(mean_gradient({"name": name}, size), true)
        lines.append(f"| `{name}` | {values['length']:.3f} | {values['cosine']:.5f} | {values['error']:.1e} |")
    return lines


def loss_table() -> list[str]:
    """Return the lines of the second table."""
    true = true_gradient()
    lines = ["| loss | " + " | ".join(f"length, error after {each}" for each in DISTANCES) + " |", "|---|---|---|"]
    for name, (loss, correction) in LOSSES.items():
        cells = []
        for distance in DISTANCES:
            found = mean_gradient({"name": "rloo"}, 2, loss=loss, correction=correction, distance=distance)
            values = compare(found, true)
            cells.append(f"{values['length']:.2f}, {values['error']:.1%}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--group", type=int, default=4)
    tables = {"estimators": estimator_table(parser.parse_args().group), "losses": loss_table()}
    for lines in tables.values():
        print("\n".join(lines), end="\n\n")
    print(json.dumps(tables))


if __name__ == "__main__":
    main()
