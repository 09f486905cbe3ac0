"""The optimizer steps of one training step: which samples each gets, and what they report together. No torch."""

import hashlib
from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from torl.types import TrainingSample

# Of several optimizer steps these are added up, and those that end in `_max` are the largest; all others are averaged.
_SUMS = {"update_seconds", "tokens", "sampled_tokens", "samples", "rows"}


def mini_batches(samples: int, epochs: int, parts: int, key: Hashable) -> list[list[int]]:
    """For each optimizer step the indices of its samples, in ascending order.

    Every epoch holds each sample once, cut into `parts` whose sizes differ by one at most (as many parts as there are
    samples, if those are fewer). The order depends on `key` and the epoch only.
    """
    parts = min(parts, samples)
    found = []
    for epoch in range(epochs):
        digest = hashlib.blake2b(repr((key, epoch)).encode(), digest_size=8).digest()
        order = np.random.default_rng(int.from_bytes(digest)).permutation(samples)
        found += [sorted(part.tolist()) for part in np.array_split(order, parts)] if parts else []
    return found


def combine_reports(reports: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """One report of several optimizer steps; empty if there were none."""
    if not reports:
        return {}
    combined: dict[str, float] = {}
    for name in reports[0]:
        values = [report[name] for report in reports]
        if name.endswith("_max"):
            combined[name] = max(values)
        else:
            combined[name] = sum(values) if name in _SUMS else sum(values) / len(values)
    return combined


def explained_variance(samples: Sequence[TrainingSample]) -> float:
    """1 - var(returns - values) / var(returns) over all sampled tokens: 1 for a perfect critic, 0 for a useless one."""
    returns = np.concatenate([sample.returns[sample.loss_mask] for sample in samples if sample.returns is not None])
    values = np.concatenate([sample.values[sample.loss_mask] for sample in samples if sample.values is not None])
    variance = float(returns.var(dtype=np.float64))
    return 1 - float((returns - values).var(dtype=np.float64)) / variance if variance > 0 else 0.0
