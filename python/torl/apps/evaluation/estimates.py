"""Statistics of graded responses: estimates with confidence intervals, pass@k, maj@k and correlations.

Axis `_P`: the problems of a set.
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import atanh, comb, sqrt, tanh
from statistics import fmean
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from torl.report.series import rank_correlation

AVERAGE = "average"
Values: TypeAlias = npt.NDArray[np.float64]
"""One number between 0 and 1 for each problem of a set, shape (P,)."""
Interval: TypeAlias = tuple[float, float]
"""The lower and upper bound of a 95 % confidence interval."""

RESAMPLES = 10_000
CONFIDENCE = 0.95
_BATCH_SIZE = 1_000  # resamples per batch, to bound the memory of large sets
_MAX_SUBSETS: Final = 1_000
_QUANTILE: Final = 1.96  # of the normal distribution, for 95 %


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over problems or sets with its 95 % confidence interval."""

    value: float
    interval: Interval


def estimates(sets: Mapping[str, Values]) -> dict[str, Estimate]:
    """Return the mean of each set and, for several sets, their mean under `AVERAGE`."""
    means = {name: estimate([values_P]) for name, values_P in sets.items()}
    return means | ({AVERAGE: estimate(list(sets.values()))} if len(sets) > 1 else {})


def overall(found: Mapping[str, Estimate]) -> Estimate:
    """Return the mean over the sets, or the mean of the only set."""
    return found[AVERAGE] if AVERAGE in found else next(iter(found.values()))


def estimate(sets: Sequence[Values]) -> Estimate:
    """Return the mean over sets with its interval."""
    return Estimate(mean_over_sets(sets), bootstrap(sets))


def mean_over_sets(sets: Sequence[Values]) -> float:
    """Return the mean of the sets' means. As in the papers, sets have equal weight regardless of their size."""
    return float(np.mean([values_P.mean() for values_P in sets]))


def bootstrap(sets: Sequence[Values], *, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """Return a 95 % percentile bootstrap interval of `mean_over_sets` over the problems of each set.

    For a paired comparison, pass the difference of each problem.
    """
    generator = np.random.default_rng(seed)
    means = np.zeros(resamples)
    for values_P in sets:
        size = len(values_P)
        for start in range(0, resamples, _BATCH_SIZE):
            rows = min(_BATCH_SIZE, resamples - start)
            drawn = generator.multinomial(size, np.full(size, 1 / size), size=rows)
            means[start : start + rows] += drawn @ values_P / size
    low, high = np.quantile(means / len(sets), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Return the unbiased estimate of pass@k: the fraction of k-subsets of the samples with a correct one.

    1 - C(n - c, k) / C(n, k) for n samples with c correct ones (Chen et al. 2021, equation 1). 0 for k = 0.

    Raises:
        ValueError: `correct` or `k` is not between 0 and `samples`.
    """
    if not 0 <= correct <= samples or not 0 <= k <= samples:
        raise ValueError(f"pass@{k} of {samples} samples with {correct} correct ones is not defined")
    return 1.0 - comb(samples - correct, k) / comb(samples, k)


def majority(answers: Sequence[str | None], correct: Sequence[bool]) -> float:
    """Return maj@n: whether the most frequent answer is correct, or the correct fraction of tied answers.

    All correct answers count as one answer, because each equals the reference. Wrong answers are compared by text.
    Responses without an answer do not vote.
    """
    votes: Counter[str | None] = Counter()
    for answer, right in zip(answers, correct, strict=True):
        if right or answer is not None:
            votes[None if right else answer] += 1  # None: the correct answer
    max_votes = max(votes.values(), default=0)
    elected = [answer for answer, count in votes.items() if count == max_votes]
    return elected.count(None) / len(elected) if elected else 0.0


def majority_at_k(answers: Sequence[str | None], correct: Sequence[bool], k: int) -> float:
    """Return maj@k: the mean of `majority` over the k-subsets of the samples.

    All subsets count if there are at most a thousand, else a thousand random ones, the same in every call.
    """
    samples = len(correct)
    if comb(samples, k) <= _MAX_SUBSETS:
        subsets = list(combinations(range(samples), k))
    else:
        generator = random.Random(0)
        subsets = [tuple(generator.sample(range(samples), k)) for _ in range(_MAX_SUBSETS)]
    return fmean(majority([answers[i] for i in subset], [correct[i] for i in subset]) for subset in subsets)


def correlation(x_P: Values, y_P: Values) -> Estimate | None:
    """Return Spearman's rank correlation over problems; None for constant values or fewer than four problems.

    The interval is that of Bonett and Wright (2000): Fisher's transformation with the variance (1 + r² / 2) / (P - 3).
    """
    found = rank_correlation(x_P.tolist(), y_P.tolist()) if len(x_P) > 3 else None
    if found is None:
        return None
    if abs(found) >= 1:
        return Estimate(found, (found, found))
    width = _QUANTILE * sqrt((1 + found**2 / 2) / (len(x_P) - 3))
    return Estimate(found, (tanh(atanh(found) - width), tanh(atanh(found) + width)))
