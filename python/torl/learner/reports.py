"""What the optimizer steps of one training step report together. No torch."""

from collections.abc import Mapping, Sequence

import numpy as np

from torl.types import TrainingSample

# Of several optimizer steps these are added up, and those that end in `_max` are the largest; all others are averaged.
_SUMS = {"update_seconds", "tokens", "sampled_tokens", "samples", "rows"}


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
